"""Broken guards: bugs written into the source of one function, and the noticing checks."""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from holdfast.server import conflicts, logs, settings
from holdfast.server.auth import authorization, tokens
from holdfast.server.auth.access import Access
from holdfast.server.auth.authentication import Authenticator
from holdfast.server.auth.authorization import Authorizer
from holdfast.server.auth.passwords import Hash
from holdfast.server.auth.tokens import TokenCheck
from holdfast.server.config import Secret
from holdfast.server.limits import ConnectionCount
from tests.kit.server import auth_checks, auth_keys_checks, config_checks, logs_checks


def break_it(patch: pytest.MonkeyPatch, owner: Any, name: str, right: str, wrong: str) -> None:
    """Replace a piece of the text of a function of a class or module."""
    text = textwrap.dedent(inspect.getsource(getattr(owner, name)))
    assert text.count(right) == 1, f"{name} has changed: where is {right!r}?"
    module = owner if inspect.ismodule(owner) else sys.modules[owner.__module__]
    made: dict[str, Any] = {}
    exec(text.replace(right, wrong), vars(module), made)
    patch.setattr(owner, name, made[name])


Broken = tuple[Any, str, str, str, Callable[..., None], dict[str, Any]]

MUTANTS: dict[str, Broken] = {
    "the token chooses its algorithm": (
        TokenCheck,
        "check",
        "algorithms=list(self._algorithms)",
        "algorithms=[jwt.get_unverified_header(token)['alg']]",
        auth_checks.token_may_not_choose_its_algorithm,
        {},
    ),
    "no signature is checked": (
        TokenCheck,
        "check",
        '"verify_iat": False',
        '"verify_iat": False, "verify_signature": False',
        auth_checks.token_that_is_not_good,
        {},
    ),
    "expired tokens are good": (
        TokenCheck,
        "check",
        '"verify_iat": False',
        '"verify_iat": False, "verify_exp": False',
        auth_checks.token_that_is_not_good,
        {},
    ),
    "any audience is good": (
        TokenCheck,
        "check",
        "bool(config.audience)",
        "False",
        auth_checks.audience_and_clocks,
        {},
    ),
    "a role may be anything": (
        TokenCheck,
        "_claims",
        "not isinstance(role, str) or not role",
        "role is None",
        auth_checks.role_that_a_token_must_name,
        {},
    ),
    "wrong credentials count as anonymous": (
        Authenticator,
        "begin",
        "return self._token(data)",
        "return self._token(data) if data != b'bad' else self._anonymous('')",
        auth_checks.nobody,
        {},
    ),
    "anonymous clients are always allowed": (
        Authenticator,
        "_anonymous",
        "if self._config.methods else ANONYMOUS",
        "or ANONYMOUS",
        auth_checks.nobody,
        {},
    ),
    "a certificate's end does not matter": (
        Authenticator,
        "_certified",
        "expires_ns <= self._clock.now_ns()",
        "expires_ns <= 0",
        auth_checks.certificates,
        {},
    ),
    "an old password is remembered after a reload": (
        Authenticator,
        "use",
        "self._recognised: dict[str, bytes] = {}",
        "self._recognised = getattr(self, '_recognised', {})\n"
        "    self._seal = self.__dict__.setdefault('_first', self._seal)",
        auth_checks.a_password_is_hashed_once,
        {},
    ),
    "every password is hashed again": (
        Authenticator,
        "_fits",
        "if known is not None and",
        "if known is None and",
        auth_checks.a_password_is_hashed_once,
        {},
    ),
    "any number of passwords is hashed": (
        Authenticator,
        "_fits",
        "len(self._hashing) >= HASHES_WAITING_MAX",
        "False",
        auth_checks.a_flood_of_passwords_is_refused,
        {},
    ),
    "the digest is not compared": (
        Hash,
        "fits",
        "hmac.compare_digest(found, self.digest)",
        "hmac.compare_digest(found[:0], self.digest[:0])",
        auth_checks.passwords,
        {},
    ),
    "names of grants are regular expressions": (
        authorization,
        "_pattern",
        "map(re.escape, text.split('*'))".replace("'", '"'),
        'text.split("*")',
        auth_checks.grants,
        {"role": "anybody", "action": "consume", "topic": "public/default/newsXtoday", "allowed": False},
    ),
    "a grant on a topic is one on its namespace": (
        authorization._Rule,
        "covers",
        "len(self.place) <= len(place) and",
        "",
        auth_checks.places_above_a_topic,
        {},
    ),
    "any action is every action": (
        Authorizer,
        "_allows",
        "actions & rule.allow and ",
        "",
        auth_checks.grants,
        {"role": "billing", "action": "admin", "topic": "shop/eu/orders", "allowed": False},
    ),
    "a lookup needs no grant": (
        Access,
        "authorize",
        "self._looks_up(role, name) if",
        "True if",
        auth_checks.what_the_protocol_asks,
        {},
    ),
    "closed connections still count": (
        ConnectionCount,
        "leave",
        "self.count -= 1",
        "pass",
        auth_checks.connections_in_all_and_from_one_address,
        {},
    ),
    "tokens are logged": (
        logs,
        "masked",
        "text = pattern.sub(instead, text)",
        "pass",
        logs_checks.what_looks_like_a_secret_does_not_get_out,
        {"text": logs_checks.TOKEN},
    ),
    "a client writes lines of its own": (
        logs,
        "_on_one_line",
        "if text.isprintable():",
        "if text:",
        logs_checks.a_line_is_one_line,
        {},
    ),
    "a secret is shown": (
        Secret,
        "__repr__",
        '"Secret(***)"',
        "self._text",
        config_checks.secrets_are_not_shown,
        {"tmp_path": True},
    ),
    "the variable wins over the flag": (
        settings,
        "load",
        "reading.read_environment(environment or {})\n    reading.read_flags(flags)",
        "reading.read_flags(flags)\n    reading.read_environment(environment or {})",
        config_checks.flag_wins_over_variable_over_file,
        {"tmp_path": True},
    ),
    "tables of a list are one": (
        settings._Places,
        "enter",
        "self._lengths.get(way, 0) + 1",
        "1",
        config_checks.every_key_is_found_where_it_stands,
        {},
    ),
    "a public key is a secret": (
        tokens,
        "_is_asymmetric",
        "return True\n    return False",
        "return False\n    return False",
        auth_keys_checks.a_public_key_is_no_secret,
        {"encoding": Encoding.DER},
    ),
    "a role without grants stages": (
        Access,
        "authorize",
        'not may.allows_somewhere(role, "produce")',
        "False",
        auth_checks.what_the_protocol_asks,
        {},
    ),
    "a tenant's admins do everything": (
        Authorizer,
        "_allows",
        'if "admin" in actions and role',
        "if role",
        auth_checks.a_tenants_own_admins,
        {},
    ),
    "an empty host listens everywhere": (
        conflicts,
        "_listen_conflicts",
        "if not listen.host:",
        "if False:",
        config_checks.an_empty_variable_does_not_open_every_network,
        {"tmp_path": True},
    ),
    "keys without their method are accepted": (
        conflicts,
        "_authentication_conflicts",
        "if named and method not in authentication.methods:",
        "if False:",
        config_checks.keys_that_nobody_asks_for,
        {"tmp_path": True},
    ),
    "every mistake is in the first line": (
        settings,
        "_locate",
        'begin, statement = number + 1, ""',
        'statement = ""',
        config_checks.flag_wins_over_variable_over_file,
        {"tmp_path": True},
    ),
}
