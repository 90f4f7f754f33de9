"""`holdfast user` and `holdfast token`: what clients of a server show to be let in."""

from __future__ import annotations

import argparse
import base64
import getpass
import os
import secrets
import sys
import time
from pathlib import Path
from typing import Any

from holdfast.cli.output import tell
from holdfast.cli.parsing import Subparsers, Usage, bare_command
from holdfast.cli.positions import span
from holdfast.errors import Exists, Misuse, NotFound
from holdfast.formatting import plural

USER = """\
Names and passwords, for authentication.basic.users_file of a server. The file
holds a hash of each password (scrypt); a running server reloads it on SIGHUP."""

SET = """\
Adds a user, or changes a password. The command asks for the password; if the
standard input is not a terminal, its first line is the password."""

CREATE = """\
Creates a token (JWT) for a role and prints it. Its owner has that role until it
expires: only a new key of the server revokes it."""

SECRET = """\
Creates a secret for tokens, in a file that only you can read. Give it only to
the server, as authentication.token.secret_file."""

SECRET_BYTES = 64


def add(nouns: Subparsers) -> None:
    user = nouns.add_parser("user", help="manage names and passwords of a server", description=USER)
    verbs = user.add_subparsers(title="verbs", metavar="VERB", required=True)
    for name, summary, words, run in (
        ("set", "add a user or change a password", SET, set_user),
        ("rm", "remove a user", "Removes a user.", remove_user),
    ):
        parser, _ = bare_command(verbs, name, summary, words, run)
        parser.add_argument("file", type=Path, metavar="FILE")
        parser.add_argument("name", metavar="NAME", type=user_name)
    parser, _ = bare_command(
        verbs, "ls", "list users", "Lists the users of a file, one per line.", list_users
    )
    parser.add_argument("file", type=Path, metavar="FILE")

    token = nouns.add_parser("token", help="create keys and tokens for the roles of a server")
    verbs = token.add_subparsers(title="verbs", metavar="VERB", required=True)
    parser, _ = bare_command(verbs, "create", "create a token for a role", CREATE, create_token)
    parser.add_argument("role", metavar="ROLE")
    key = parser.add_mutually_exclusive_group(required=True)
    key.add_argument("--secret-file", type=Path, metavar="FILE", help="sign with HS256")
    key.add_argument("--private-key-file", type=Path, metavar="FILE", help="sign with RS256 or ES256, PEM")
    parser.add_argument(
        "--expires", type=span, metavar="SPAN", help="lifetime, such as 30d (default: does not expire)"
    )
    parser.add_argument("--audience", metavar="NAME", help="audience of the token")
    parser, _ = bare_command(verbs, "secret", "create a secret for tokens", SECRET, make_secret)
    parser.add_argument("file", type=Path, metavar="FILE")


def user_name(text: str) -> str:
    """A name that a file of users can hold."""
    from holdfast.server.auth.passwords import checked_user

    try:
        return checked_user(text)
    except Misuse as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def users_of(path: Path) -> dict[str, Any]:
    from holdfast.server.auth.passwords import read_users

    if not path.exists():
        raise NotFound(f"there is no file {path}; `holdfast user set {path} NAME` creates it")
    return dict(read_users(path))


def set_user(options: argparse.Namespace) -> int:
    from holdfast.server.auth.passwords import PASSWORD_BYTES_MAX, Hash, write_users

    users = users_of(options.file) if options.file.exists() else {}
    name = options.name
    password = ask_password(name)
    if not password or len(password.encode()) > PASSWORD_BYTES_MAX:
        raise Misuse(
            f"the password for {name} has {len(password.encode())} bytes; use 1 to {PASSWORD_BYTES_MAX}"
        )
    known = name in users
    write_users(options.file, users | {name: Hash.of(password)})
    return tell(
        options, {"user": name, "added": not known}, f"{name}: {'password changed' if known else 'added'}"
    )


def ask_password(name: str) -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    password = getpass.getpass(f"password for {name}: ")
    if getpass.getpass("the same again: ") != password:
        raise Usage("the two passwords differ; try again")
    return password


def remove_user(options: argparse.Namespace) -> int:
    from holdfast.server.auth.passwords import write_users

    users = users_of(options.file)
    if options.name not in users:
        raise NotFound(f"{options.file} has no user {options.name}")
    del users[options.name]
    write_users(options.file, users)
    return tell(
        options,
        {"user": options.name, "removed": True},
        f"{options.name}: removed, {plural(len(users), 'user')} left",
    )


def list_users(options: argparse.Namespace) -> int:
    names = sorted(users_of(options.file))
    return tell(options, names, "\n".join(names)) if names or options.json else 0


def create_token(options: argparse.Namespace) -> int:
    try:
        import jwt
    except ModuleNotFoundError as error:
        raise Usage(f"tokens need {error.name}: pip install 'holdfast[server]'") from None
    from holdfast.server.auth.tokens import SECRET_BYTES_MIN, read_secret

    if not options.role:
        raise Usage("the role of a token is empty; a server would refuse it")
    claims: dict[str, Any] = {"sub": options.role, "iat": int(time.time())}
    if options.expires is not None:
        claims["exp"] = int(time.time() + options.expires)
    if options.audience:
        claims["aud"] = options.audience
    if options.secret_file is not None:
        key: Any = read_secret(options.secret_file)
        if len(key) < SECRET_BYTES_MIN:
            raise Misuse(f"{options.secret_file}: a secret has at least {SECRET_BYTES_MIN} bytes")
        algorithm = "HS256"
    else:
        key, algorithm = private_key(options.private_key_file)
    token = jwt.encode(claims, key, algorithm=algorithm)
    return tell(options, {"token": token, "algorithm": algorithm, "claims": claims}, token)


def private_key(path: Path) -> tuple[Any, str]:
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(path.read_bytes(), None)
    except (ValueError, TypeError):
        raise Misuse(f"{path} is not a private key in PEM without a password") from None
    if isinstance(key, RSAPrivateKey):
        return key, "RS256"
    if isinstance(key, EllipticCurvePrivateKey) and isinstance(key.curve, SECP256R1):
        return key, "ES256"
    raise Misuse(f"{path} is neither an RSA key nor a P-256 key")


def make_secret(options: argparse.Namespace) -> int:
    text = b"base64:" + base64.b64encode(secrets.token_bytes(SECRET_BYTES)) + b"\n"
    try:
        file = os.open(options.file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise Exists(f"{options.file} exists, and tokens may be signed with it; use another file") from None
    with os.fdopen(file, "wb") as out:
        out.write(text)
    return tell(options, {"file": str(options.file)}, f"{options.file}: a new secret")
