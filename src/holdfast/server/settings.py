"""Read settings: a flag wins over a variable, a variable over the TOML file.

One error lists all faults, each with its place: file and line, variable or flag.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import re
import tomllib
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

from holdfast.errors import BadConfiguration
from holdfast.server.config import Config, Secret, Tap, value_of
from holdfast.server.conflicts import conflicts

VARIABLE_PREFIX = "HOLDFAST_"
FILE_VARIABLE = "HOLDFAST_CONFIG"
TAP_EXAMPLE = "Camera.left/frame=camera-left"

Way: TypeAlias = tuple[str | int, ...]
"""A key in its parts; a number is a place in a list of tables."""

_OF_SERVICES = re.compile(r".+?_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)")
"""Variables that Kubernetes and Docker set for services such as `holdfast-http`."""

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SPANS = {"": 1, "ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_TRUTH = {"true": True, "yes": True, "on": True, "1": True} | dict.fromkeys(
    ("false", "no", "off", "0"), False
)


@dataclass(frozen=True)
class Leaf:
    """One setting that can be given by itself."""

    key: str
    kind: Any
    """The type that it is declared with."""
    default: Any

    @property
    def variable(self) -> str:
        """Its name in the environment."""
        return VARIABLE_PREFIX + self.key.upper().replace(".", "_")


@dataclass(frozen=True)
class Settings:
    """The settings, and the origin of each value."""

    config: Config
    origins: Mapping[str, str]
    """By key, for those that were given: `holdfast.toml:12`, `$HOLDFAST_LISTEN_PORT`, `--port`."""
    file: Path | None = None

    def origin(self, key: str) -> str:
        return self.origins.get(key, "default")


def leaves(of: type = Config, prefix: str = "") -> dict[str, Leaf]:
    """Return all settings by their keys. A list of tables is one setting."""
    found: dict[str, Leaf] = {}
    hints = get_type_hints(of)
    for field in dataclasses.fields(of):
        key, kind = f"{prefix}{field.name}", hints[field.name]
        if dataclasses.is_dataclass(kind):
            assert isinstance(kind, type)
            found |= leaves(kind, f"{key}.")
        else:
            found[key] = Leaf(key, kind, field.default)
    return found


def load(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Sequence[tuple[str, str, str]] = (),
) -> Settings:
    """Read the settings of a file, the environment, and flags: each (its name, key, text).

    Raises:
        BadConfiguration: settings are invalid; the text has one line for each.
    """
    reading = _Reading()
    if file is not None:
        reading.read_file(file)
    reading.read_environment(environment or {})
    reading.read_flags(flags)
    return reading.settings(file)


def _of_a_service(name: str, text: str) -> bool:
    """Return whether Kubernetes or Docker set the variable: $HOLDFAST_HTTP_PORT with an address in it."""
    found = _OF_SERVICES.fullmatch(name)
    return found is not None and (found[1] != "PORT" or "://" in text)


class _Reading:
    """Values by their keys as they come in; the later ones win."""

    def __init__(self) -> None:
        self.leaves = leaves()
        self.values: dict[str, Any] = {}
        self.origins: dict[str, str] = {}
        self.problems: list[str] = []
        self.file: tuple[Path, str] | None = None

    # -- the three sources -----------------------------------------------------------------------------

    def read_file(self, path: Path) -> None:
        try:
            text = path.read_bytes().decode()
            table = tomllib.loads(text)
        except OSError as error:
            raise BadConfiguration(f"{path}: cannot be read: {error.strerror}") from None
        except ValueError as error:  # no TOML, no UTF-8, or a number that Python does not read
            raise BadConfiguration(_toml_words(path, error)) from None
        self.file = (path, text)
        wrong: list[tuple[Way, str]] = []
        given: dict[str, Way] = {}
        base = path.absolute().parent
        for way, value in _walk(table, self.leaves):
            key = ".".join(map(str, way))
            leaf = self.leaves.get(key)
            if leaf is None:
                wrong.append((way, self._unknown(key, value)))
                continue
            given[key] = way
            try:
                self.values[key] = _from_toml(leaf.kind, value, key, base)
            except _Wrong as error:
                wrong.append(((*way, *error.way), str(error)))
        lines = _locate(text, {way for way, _ in wrong} | set(given.values()))
        self.problems += [f"{path}:{lines[way]}: {_key(way)}: {words}" for way, words in wrong]
        for key, way in given.items():
            self.origins[key] = f"{path}:{lines[way]}"

    def read_environment(self, environment: Mapping[str, str]) -> None:
        by_variable = {leaf.variable: leaf for leaf in self.leaves.values()}
        sections = {f"{VARIABLE_PREFIX}{key.split('.')[0].upper()}_" for key in self.leaves if "." in key}
        for name, text in sorted(environment.items()):
            leaf = by_variable.get(name)
            if leaf is not None:
                self._read_text(f"${name}", leaf, text)
            elif any(name.startswith(section) for section in sections) and not _of_a_service(name, text):
                ends = "_" + name.removeprefix(VARIABLE_PREFIX)  # its section was left out
                near = [each for each in by_variable if each.endswith(ends)]
                near = near or difflib.get_close_matches(name, by_variable, n=1, cutoff=0.6)
                hint = f"; did you mean ${near[0]}?" if near else ""
                self.problems.append(f"${name}: there is no such setting{hint}")

    def read_flags(self, flags: Sequence[tuple[str, str, str]]) -> None:
        for flag, key, text in flags:
            leaf = self.leaves.get(key)
            if leaf is None:
                self.problems.append(f"{flag}: {key}: {self._unknown(key, text)}")
            elif _plain(leaf.kind) is Secret:
                self.problems.append(
                    f"{flag}: {key}: every user of this machine can read a secret on the command line; "
                    f"put it into a file, or into ${leaf.variable}"
                )
            else:
                self._read_text(flag, leaf, text)

    def _read_text(self, origin: str, leaf: Leaf, text: str) -> None:
        try:
            self.values[leaf.key] = _from_text(leaf.kind, text, leaf.key)
            self.origins[leaf.key] = origin
        except _Wrong as error:
            self.problems.append(f"{origin}: {leaf.key}: {error}")

    def _unknown(self, key: str, value: Any) -> str:
        tables = {known.rpartition(".")[0] for known in self.leaves} - {""}
        if key in tables:
            return f"is a table: write [{key}], and its keys below it"
        near = difflib.get_close_matches(
            key, tables if isinstance(value, dict) else self.leaves, n=1, cutoff=0.5
        )
        last = key.rpartition(".")[2]
        near = [known for known in self.leaves if known.rpartition(".")[2] == last] or near
        return "there is no such key" + (f"; did you mean {near[0]}?" if near else "")

    # -- what comes of it ------------------------------------------------------------------------------

    def settings(self, file: Path | None) -> Settings:
        if not self.problems:
            config: Config = self._build(Config, "")
            for key, why in conflicts(config):
                origin = self._origin(key)
                self.problems.append(f"{origin}: {key}: {why}" if origin else f"{key}: {why}")
        if self.problems:
            raise BadConfiguration("\n".join(self.problems))
        return Settings(config, self.origins, file)

    def _origin(self, key: str) -> str | None:
        """Return the origin of a value; inside a list of tables, its own line."""
        whole = self.origins.get(key.partition("[")[0])
        if "[" not in key or self.file is None or whole is None or not whole.startswith(f"{self.file[0]}:"):
            return whole
        path, text = self.file
        way: Way = tuple(int(part) if part.isdecimal() else part for part in re.findall(r"[^].[]+", key))
        return f"{path}:{_locate(text, {way})[way]}"

    def _build(self, of: type, prefix: str) -> Any:
        hints = get_type_hints(of)
        given: dict[str, Any] = {}
        for field in dataclasses.fields(of):
            key, kind = f"{prefix}{field.name}", hints[field.name]
            if dataclasses.is_dataclass(kind):
                assert isinstance(kind, type)
                given[field.name] = self._build(kind, f"{key}.")
            elif key in self.values:
                given[field.name] = self.values[key]
        return of(**given)


# -- where a key stands ---------------------------------------------------------------------------------


def _walk(table: Mapping[str, Any], known: Mapping[str, Leaf], way: Way = ()) -> Iterator[tuple[Way, Any]]:
    """Yield every key with its value; enter tables that are not a setting themselves."""
    for name, value in table.items():
        here = (*way, name)
        key = ".".join(map(str, here))
        below = any(each.startswith(f"{key}.") for each in known)
        if isinstance(value, dict) and below:
            yield from _walk(value, known, here)
        else:
            yield here, value


def _key(way: Way) -> str:
    parts = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in way)
    return parts.removeprefix(".")


def _locate(text: str, ways: set[Way]) -> dict[Way, int]:
    """Find the line of each key.

    The parser reports no lines. So it gets one statement at a time: a line, and more if a value needs them.
    """
    places = _Places()
    begin, statement = 1, ""
    for number, line in enumerate(text.split("\n"), 1):
        statement += f"{line}\n"
        try:
            found = tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            continue  # in the middle of a value
        if statement.lstrip().startswith("["):
            places.enter(found, begin)
        else:
            places.note(places.table, found, begin)
        begin, statement = number + 1, ""
    return {way: places.lines.get(way, 1) for way in ways}


class _Places:
    """Finds the line of each key, from the statements of a file in their order."""

    def __init__(self) -> None:
        self.lines: dict[Way, int] = {}
        self.table: Way = ()
        """The table that was opened last."""
        self._lengths: dict[Way, int] = {}
        """Of lists of tables."""

    def enter(self, head: Any, line: int) -> None:
        """Note a statement `[a.b]` or `[[a.b]]`, as the parser reads it alone."""
        way: Way = ()
        while head:
            ((name, head),) = head.items()
            way = (*way, name)
            self.lines.setdefault(way, line)
            if isinstance(head, list):
                self._lengths[way] = self._lengths.get(way, 0) + 1
                head = head[0]
            if way in self._lengths:  # the next keys are in the last of these tables
                way = (*way, self._lengths[way] - 1)
                self.lines.setdefault(way, line)
        self.table = way

    def note(self, way: Way, value: Any, line: int) -> None:
        """Note a value, and all values in it."""
        parts: Iterable[tuple[str | int, Any]] = ()
        if isinstance(value, dict):
            parts = value.items()
        elif isinstance(value, list):
            parts = enumerate(value)
        for name, part in parts:
            self.lines.setdefault((*way, name), line)
            self.note((*way, name), part, line)


def _toml_words(path: Path, error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"{path}: is not UTF-8 at byte {error.start}"
    if not isinstance(error, tomllib.TOMLDecodeError):
        return f"{path}: has a number of thousands of digits; write a smaller one"
    words = str(error)
    place = re.search(r" \(at line (\d+), column (\d+)\)", words)
    if place is None:
        return f"{path}: {words}"
    return f"{path}:{place[1]}: {words[: place.start()]} at column {place[2]}"


# -- values ---------------------------------------------------------------------------------------------


class _Wrong(Exception):
    """A value that does not fit; `way` leads from the leaf to the fault."""

    def __init__(self, words: str, way: Way = ()) -> None:
        super().__init__(words)
        self.way = way


def _plain(kind: Any) -> Any:
    """Return the type without "or None"."""
    if get_origin(kind) in (types.UnionType, Union):
        return next(each for each in get_args(kind) if each is not types.NoneType)
    return kind


def _is_port(key: str) -> bool:
    return key.startswith("listen.") and key.endswith("port")


def _from_toml(kind: Any, value: Any, key: str, base: Path) -> Any:
    """Check a value of the file; sizes, times and ports may be texts."""
    plain = _plain(kind)
    if get_origin(plain) is tuple:
        return _list_from_toml(get_args(plain)[0], value, key, base)
    if plain is bool:
        if not isinstance(value, bool):
            raise _Wrong(f"{_shown(value)} is neither true nor false")
        return value
    if plain in (int, float):
        if isinstance(value, str):
            return _from_text(kind, value, key)
        if isinstance(value, bool) or not isinstance(value, int if plain is int else int | float):
            raise _Wrong(f"{_shown(value)} is not {_number_words(plain, key)}")
        return value if plain is int else _finite(float(value))
    if not isinstance(value, str):
        if plain is Secret:
            raise _Wrong("is not a text in quotes")
        raise _Wrong(f"{_shown(value)} is not a text in quotes")
    return _from_text(kind, value, key, base)


def _list_from_toml(kind: Any, value: Any, key: str, base: Path) -> tuple[Any, ...]:
    if not isinstance(value, list):
        words = "a list of tables: write [[" + key + "]]" if dataclasses.is_dataclass(kind) else "a list"
        raise _Wrong(f"is not {words}")
    return tuple(_each(kind, each, key, number, base) for number, each in enumerate(value))


def _each(kind: Any, value: Any, key: str, number: int, base: Path) -> Any:
    if not dataclasses.is_dataclass(kind):
        try:
            return _from_toml(kind, value, key, base)
        except _Wrong as error:
            raise _Wrong(str(error)) from None
    assert isinstance(kind, type)
    if not isinstance(value, dict):
        raise _Wrong("is not a table", (number,))
    hints, given = get_type_hints(kind), {}
    for name, part in value.items():
        if name not in hints:
            near = difflib.get_close_matches(name, hints, n=1, cutoff=0.0)
            raise _Wrong(f"there is no such key; did you mean {near[0]}?", (number, name))
        try:
            given[name] = _from_toml(hints[name], part, f"{key}.{name}", base)
        except _Wrong as error:
            raise _Wrong(str(error), (number, name, *error.way)) from None
    for field in dataclasses.fields(kind):
        needed = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if needed and field.name not in given:
            raise _Wrong(f"{field.name} is missing", (number,))
    return kind(**given)


def _from_text(kind: Any, text: str, key: str, base: Path | None = None) -> Any:
    """Parse the value of a variable or a flag, or a text of the file."""
    plain = _plain(kind)
    if get_origin(plain) is tuple:
        part = get_args(plain)[0]
        if part is Tap:
            return _taps_from_text(text)
        if dataclasses.is_dataclass(part):
            raise _Wrong("is a list of tables, which only the file can have")
        return tuple(_from_text(part, each.strip(), key) for each in text.split(",") if each.strip())
    if get_origin(plain) is Literal:
        if text not in get_args(plain):
            near = difflib.get_close_matches(text, get_args(plain), n=1, cutoff=0.6)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise _Wrong(f"{text!r} is not one of {', '.join(get_args(plain))}{hint}")
        return text
    if plain is bool:
        if text.lower() not in _TRUTH:
            raise _Wrong(f"{text!r} is neither true nor false")
        return _TRUTH[text.lower()]
    if plain is Path:
        if not text:
            return None
        return Path(text) if base is None else base / text
    if plain is Secret:
        return Secret(text) if text else None
    if plain in (int, float):
        return _number_from_text(plain, text, key)
    return text


def _taps_from_text(text: str) -> tuple[Tap, ...]:
    """Parse taps with a comma between them."""
    found: list[Tap] = []
    for each in filter(None, map(str.strip, text.split(","))):
        tap = Tap.from_text(each)
        if tap is None:
            raise _Wrong(f"{each!r} is not SERVICE.INSTANCE/EVENT=TOPIC, such as {TAP_EXAMPLE}")
        found.append(tap)
    return tuple(found)


DIGITS_MAX = 400
"""Python's largest float has 309 digits, and Python refuses to read thousands."""


def _number_from_text(plain: type, text: str, key: str) -> int | float | None:
    if _is_port(key) and text.lower() == "off":
        return None
    pattern, units = r"(-?\d+(?:\.\d+)?)", {"": 1.0}
    if key.endswith("_bytes"):
        pattern, units = r"(-?\d+)\s*([kmgt]?)(?:i?b)?", _UNITS  # type: ignore[assignment]
    elif key.endswith("_s"):
        pattern, units = r"(-?\d+(?:\.\d+)?)\s*(ms|[smhdw]?)", _SPANS
    elif plain is int:
        pattern = r"(-?\d+)"
    found = re.fullmatch(pattern, text.strip().lower())
    if found is None:
        raise _Wrong(f"{text!r} is not {_number_words(plain, key)}")
    if len(found[1]) > DIGITS_MAX:
        raise _Wrong(f"a number of {len(found[1])} digits is not {_number_words(plain, key)}")
    unit = units[found[2]] if found.re.groups == 2 else 1
    if plain is int:
        return int(found[1]) * int(unit)
    return _finite(float(found[1]) * unit)


def _finite(number: float) -> float:
    if not math.isfinite(number):
        raise _Wrong(f"{number} is not a finite number")
    return number


def _number_words(plain: type, key: str) -> str:
    if _is_port(key):
        return 'a port: 1 to 65535, 0 for any free one, or "off"'
    if key.endswith("_bytes"):
        return "a size such as 65536, 64k, 64M or 1G"
    if key.endswith("_s"):
        return "a time such as 30, 30s, 15m, 2h or 7d"
    return "a whole number" if plain is int else "a number"


def _shown(value: Any) -> str:
    return f"a {type(value).__name__}" if isinstance(value, dict | list) else repr(value)


# -- and back -------------------------------------------------------------------------------------------


def as_toml(settings: Settings, *, origins: bool = True) -> str:
    """Write the settings as a file, each with its origin; secrets are left out."""

    def remark(key: str) -> str:
        return f"  # {settings.origin(key)}" if origins and settings.origin(key) != "default" else ""

    return "\n".join(_table_lines(settings.config, "", remark)).strip() + "\n"


def _table_lines(table: Any, prefix: str, remark: Callable[[str], str]) -> list[str]:
    lines: list[str] = []
    below: list[str] = []
    for field in dataclasses.fields(table):
        key, value = f"{prefix}{field.name}", getattr(table, field.name)
        if dataclasses.is_dataclass(value):
            inner = _table_lines(value, f"{key}.", remark)
            below += ["", *([f"[{key}]"] if inner[0] else []), *inner]
        elif isinstance(value, tuple) and value and dataclasses.is_dataclass(value[0]):
            for each in value:
                below += ["", f"[[{key}]]{remark(key)}", *_table_lines(each, f"{key}[].", lambda _: "")]
        elif isinstance(value, Secret):
            lines.append(f"# {field.name} is set, and not shown{remark(key).replace('  #', ';')}")
        elif value is None and not _is_port(key):
            lines.append(f"# {field.name} is not set")
        else:
            lines.append(f"{field.name} = {toml_value(value)}{remark(key)}")
    return lines + below


def shown_settings(config: Config) -> dict[str, str]:
    """Return all settings as texts by their keys, without secrets.

    Example:
        >>> shown_settings(Config())["limits.connections"]
        '10000'
    """
    return {key: _shown_text(value_of(config, key)) for key in leaves()}


def _shown_text(value: Any) -> str:
    if value is None or isinstance(value, Secret):
        return "" if value is None else "***"
    if isinstance(value, tuple) and value and dataclasses.is_dataclass(value[0]):
        return repr(value)  # tables; the texts of secrets are hidden there, too
    return toml_value(value).strip('"')


def toml_value(value: Any) -> str:
    """Write a value as in a TOML file."""
    if value is None:
        return '"off"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    return json.dumps(str(value), ensure_ascii=False)
