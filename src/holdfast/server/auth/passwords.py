"""Read and write users and their password hashes: a file with one `name:hash` per line."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
import secrets
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import BadConfiguration, Misuse

SCRYPT_LOG_N, SCRYPT_R, SCRYPT_P = 14, 8, 5
"""Cost of new hashes: 16 MiB and some tenths of a second, once per connection."""

MEMORY_BYTES_MAX = 256 << 20
ITERATIONS_MAX = 10_000_000
SALT_BYTES = 16
PASSWORD_BYTES_MAX = 1024


@dataclass(frozen=True)
class Hash:
    """The hash of a password, with the method and cost that made it.

    Example:
        >>> made = Hash.of("sesame", log_n=4)
        >>> made.fits("sesame"), made.fits("Sesame")
        (True, False)
        >>> Hash.parse(str(made)) == made
        True
    """

    kind: str
    """`scrypt` or `pbkdf2-sha256`."""
    cost: tuple[int, ...]
    """scrypt: log2 of N, r, p. pbkdf2: iterations."""
    salt: bytes
    digest: bytes

    @classmethod
    def of(cls, password: str, log_n: int = SCRYPT_LOG_N) -> Hash:
        """Hash a password with a new salt."""
        salt, cost = secrets.token_bytes(SALT_BYTES), (log_n, SCRYPT_R, SCRYPT_P)
        return cls("scrypt", cost, salt, _digest("scrypt", cost, salt, password, 32))

    @classmethod
    def parse(cls, text: str) -> Hash:
        """Parse a hash in PHC format.

        It is `$scrypt$ln=14,r=8,p=5$salt$digest` or `$pbkdf2-sha256$i=600000$salt$digest`.

        Raises:
            Misuse: the text is not such a hash.
        """
        found = re.fullmatch(r"\$([a-z0-9-]+)\$([a-z0-9=,]+)\$([^$]+)\$([^$]+)", text)
        names = {"scrypt": ("ln", "r", "p"), "pbkdf2-sha256": ("i",)}
        if found is None or found[1] not in names:
            raise Misuse("not a $scrypt$ or $pbkdf2-sha256$ hash; create one with `holdfast user set`")
        parts = [part.partition("=") for part in found[2].split(",")]
        if tuple(name for name, _, _ in parts) != names[found[1]] or not all(
            number.isdecimal() and len(number) <= 8 for _, _, number in parts
        ):
            raise Misuse(f"a {found[1]} hash has the parameters {', '.join(names[found[1]])}, in this order")
        cost = tuple(int(number) for _, _, number in parts)
        _check_cost(found[1], cost)
        salt, digest = _decode(found[3]), _decode(found[4])
        if len(salt) < 8 or not 16 <= len(digest) <= 64:
            raise Misuse("a salt needs at least 8 bytes, a digest 16 to 64")
        return cls(found[1], cost, salt, digest)

    def fits(self, password: str) -> bool:
        """Return whether this is the password, in the same time for right and wrong."""
        if len(password.encode(errors="surrogatepass")) > PASSWORD_BYTES_MAX:
            return False
        found = _digest(self.kind, self.cost, self.salt, password, len(self.digest))
        return hmac.compare_digest(found, self.digest)

    def __str__(self) -> str:
        names = ("ln", "r", "p") if self.kind == "scrypt" else ("i",)
        cost = ",".join(f"{name}={number}" for name, number in zip(names, self.cost, strict=True))
        return f"${self.kind}${cost}${_encode(self.salt)}${_encode(self.digest)}"


def _check_cost(kind: str, cost: tuple[int, ...]) -> None:
    if kind == "scrypt":
        log_n, r, p = cost
        sound = 1 <= log_n <= 20 and 1 <= r <= 32 and 1 <= p <= 16
        if not sound or 128 * r * (1 << log_n) > MEMORY_BYTES_MAX:
            raise Misuse(
                f"the scrypt parameters need more than {MEMORY_BYTES_MAX >> 20} MiB, or are out of range"
            )
    elif not 1000 <= cost[0] <= ITERATIONS_MAX:
        raise Misuse(f"pbkdf2 needs 1,000 to {ITERATIONS_MAX:,} iterations, not {cost[0]:,}")


def _digest(kind: str, cost: tuple[int, ...], salt: bytes, password: str, size: int) -> bytes:
    data = password.encode(errors="surrogatepass")
    if kind == "scrypt":
        log_n, r, p = cost
        memory = 2 * MEMORY_BYTES_MAX
        return hashlib.scrypt(data, salt=salt, n=1 << log_n, r=r, p=p, maxmem=memory, dklen=size)
    return hashlib.pbkdf2_hmac("sha256", data, salt, cost[0], size)


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode().rstrip("=")


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise Misuse("salt or digest is not base64") from None


def checked_user(name: str) -> str:
    """Return the name of a user unchanged.

    Raises:
        Misuse: the file's format cannot hold it.
    """
    if not name or not name.isprintable() or ":" in name or name[0] in "#" or name != name.strip():
        raise Misuse(
            f"{name!r} cannot name a user; use printable characters, without a colon, a # at the start, or "
            "blanks around it"
        )
    return name


def read_users(path: Path) -> dict[str, Hash]:
    """Read the users of a file, by name.

    Raises:
        BadConfiguration: the file cannot be read, or a line is invalid.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise BadConfiguration(f"{path}: the users cannot be read: {why}") from None
    users: dict[str, Hash] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, text = line.strip().partition(":")
        try:
            if not colon:
                raise Misuse("the line is not name:hash")
            if checked_user(name) in users:
                raise Misuse(f"the user {name} is listed twice; delete one line")
            users[name] = Hash.parse(text)
        except Misuse as error:
            raise BadConfiguration(f"{path}:{number}: {error}") from None
    return users


def write_users(path: Path, users: Mapping[str, Hash]) -> None:
    """Replace the file of users atomically; only its owner can read it."""
    file, temporary = tempfile.mkstemp(dir=path.absolute().parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(file, "w", encoding="utf-8") as out:
            out.write("# name:hash; `holdfast user set` writes this\n")
            out.writelines(f"{name}:{made}\n" for name, made in sorted(users.items()))
            out.flush()
            os.fsync(out.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
