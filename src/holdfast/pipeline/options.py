"""Declare every option of the source and the sink: type, default, meaning.

Spark hands options over as text under names without case. An option that is not declared here, or does not
parse, is an error that lists the options. A mistyped option that is ignored would read the wrong data.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, cast

from holdfast.errors import BadConfiguration

Side = Literal["source", "sink"]


@dataclass(frozen=True)
class Option:
    """One option as a user may give it."""

    name: str
    parse: Callable[[str], Any]
    """Raises ValueError with the allowed values."""
    default: str | None
    """In the form of the user."""
    doc: str
    sides: tuple[Side, ...]


def text(value: str) -> str:
    if not value.strip():
        raise ValueError("a text that is not empty")
    return value.strip()


def name(value: str) -> str:
    """Keep a name unchanged: blanks at its ends belong to it."""
    text(value)
    return value


def flag(value: str) -> bool:
    if value.strip().lower() not in ("true", "false"):
        raise ValueError("true or false")
    return value.strip().lower() == "true"


def count(value: str) -> int:
    if not value.strip().isdecimal() or int(value) < 1:
        raise ValueError("a whole number of 1 or more")
    return int(value)


def number(value: str) -> int:
    if not value.strip().isdecimal():
        raise ValueError("a whole number of 0 or more")
    return int(value)


def size(value: str) -> int:
    """Parse a size such as 1048576, 1m, 64k or 2g."""
    found = re.fullmatch(r"(\d+)\s*([kmgt]?)i?b?", value.strip().lower())
    if not found or int(found[1]) < 1:
        raise ValueError("a number of bytes, such as 1048576 or 64m")
    return int(found[1]) << {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}[found[2]]


def duration_s(value: str) -> float:
    """Parse a time such as 15m, 30s, 500ms or 1h."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h)", value.strip().lower())
    if not found:
        raise ValueError("a time with its unit, such as 500ms, 30s or 15m")
    return float(found[1]) * {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}[found[2]]


def time_ms(value: str) -> int:
    """Parse milliseconds since 1970, or ISO 8601; without a zone it is UTC."""
    if value.strip().isdecimal():
        return int(value)
    try:
        moment = datetime.fromisoformat(value.strip())
    except ValueError:
        raise ValueError("milliseconds since 1970, or a time such as 2026-01-31T12:00:00Z") from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def time_us(value: str) -> int:
    """Parse the same to exact microseconds."""
    if value.strip().isdecimal():
        found = 1000 * int(value)
    else:
        time_ms(value)
        moment = datetime.fromisoformat(value.strip())
        since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
        found = since // timedelta(microseconds=1)
    if found > _LAST_US:
        raise ValueError("a time before the year 10000")
    return found


_LAST_US = 253_402_300_800_000_000


def directory(value: str) -> str:
    """Make a path absolute: tasks have other working directories."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", text(value)):
        raise ValueError("a directory of this machine such as /srv/holdfast, not an address")
    return str(Path(text(value)).absolute())


def keys(value: str) -> tuple[bytes, ...]:
    """Parse a list such as ["a", "b"]."""
    wrong = ValueError('a JSON list of one or more texts, such as ["smith", "jones"]')
    try:
        found = json.loads(value)
        if not isinstance(found, list) or not found or not all(isinstance(each, str) for each in found):
            raise wrong
        return tuple(sorted({each.encode() for each in found}))
    except (ValueError, RecursionError):  # not JSON, or half of a surrogate pair
        raise wrong from None


def names(value: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(each.strip() for each in value.split(",") if each.strip()))
    if not found:
        raise ValueError("names with commas between them")
    return found


def pattern(value: str) -> str:
    try:
        re.compile(text(value))
    except re.error as error:
        raise ValueError(f"a regular expression ({error})") from None
    return text(value)


def one_of(*values: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value.strip().lower() not in values:
            raise ValueError(" or ".join(values))
        return value.strip().lower()

    return parse


Positions = dict[str, dict[int, int]]
EARLIEST, LATEST = -2, -1
"""Their numbers in JSON, as in Kafka."""


def offsets(value: str) -> str | Positions:
    """Parse `earliest`, `latest`, or {"topic": {"0": 17, "1": -2}}."""
    if value.strip().lower() in ("earliest", "latest"):
        return value.strip().lower()
    wrong = ValueError(
        'earliest, latest, or JSON such as {"orders": {"0": 17}} with -2 for earliest and -1 for latest'
    )
    try:
        found = json.loads(value)
        out = {
            str(topic): {int(partition): _position(each) for partition, each in parts.items()}
            for topic, parts in found.items()
        }
    except (ValueError, AttributeError, TypeError):
        raise wrong from None
    return out


def ends(value: str) -> str | Positions:
    """Parse `latest`, or {"topic": {"0": 17, "1": -1}}."""
    wrong = ValueError(
        'latest, or JSON such as {"orders": {"0": 17}} with -1 for latest; earliest would be an empty batch'
    )
    try:
        found = offsets(value)
    except ValueError:
        raise wrong from None
    told = found.values() if isinstance(found, dict) else ()
    if found == "earliest" or any(EARLIEST in each.values() for each in told):
        raise wrong
    return found


def _position(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < EARLIEST:
        raise ValueError("not a position")
    return value


DECLARED = """
path directory both -: The broker's data directory, on this machine; the server may run.
service.url text both -: A broker that serves: http://127.0.0.1:8080 or holdfast://127.0.0.1:6650.
token text both -: Authentication token.
topic name both -: One topic. To read: it, and its partitions.
topics names source -: Topics, with commas between them.
readCompacted flag source false: Batches only: of what is compacted, the newest message of each key; then
    everything behind it.
partitions flag source true: false: topics that are named are read alone, without partitions.
topicsPattern pattern source -: Every topic whose full name this regular expression matches.
subscribe names source -: The same as topics, by Kafka's name.
subscribePattern pattern source -: The same as topicsPattern.
startingOffsets offsets source -: Where a new query begins: earliest (a batch's default), latest (a
    stream's), or JSON.
endingOffsets ends source latest: Where a batch ends: latest, or JSON. Not for streams.
startingTimestamp time_ms source -: Begin with the first entry stored at this time or later.
endingTimestamp time_ms source -: End before the first entry stored at this time or later.
publishedFrom time_us source -: Only messages whose publishTime is this time or later ...
publishedBefore time_us source -: ... and only those whose publishTime is before this time.
keys keys source -: Only messages with one of these keys: ["smith", "jones"].
failOnDataLoss flag source true: Fail if entries were trimmed before they were read; otherwise continue.
maxOffsetsPerTrigger count source -: Most entries in one batch of a stream.
maxBytesPerTrigger size source -: Approximate limit of bytes in one batch of a stream; at least one entry
    per topic.
minOffsetsPerTrigger count source -: Entries that must wait before a batch starts ...
maxTriggerDelay duration_s source 15m: ... unless this time has passed.
minPartitions count source -: Fewest tasks; default: as many as run at once.
includeHeaders flag source false: Also the column encryption: the metadata of encrypted messages.
valueFormat bytes|json|schema source -: json: decode the value by valueSchema, or by the reader's schema.
    schema: decode it by the topic's schema in the registry, JSON or Avro.
valueSchema text source -: Type of the value as DDL, if the reader has no schema: id BIGINT, name STRING.
mode failfast|permissive source failfast: On a damaged block: fail and name it, or skip and count it. On a
    value that does not fit its schema: fail, or null.
predefinedSubscription text source -: Start at the cursor of this subscription, follow its resets, and
    advance it after each batch.
tlsTrustCertsFilePath text both -: File of trusted certificates (default: the system's).
tlsCertificateFilePath text both -: The client's certificate, for brokers that require one ...
tlsKeyFilePath text both -: ... and its key, if it is not in the same file.
checkpointLocation text sink -: Spark's option: directory of the stream's progress and id.
queryName text sink -: Spark's option: name of the stream.
sinkName text sink -: Part of a stream's key and of producer names; with batchId, the key of a batch write.
batchId number sink -: With sinkName: publish this write once, however often it is repeated.
messagesPerEntry count sink 1: Most rows in one entry; only rows with a value and nothing else share one.
timeout duration_s both 60s: Time for which an unreachable broker is retried.
"""
"""Name, type, side (or both), default (or -), and what it does. A type is a function above, or its values."""


def _declared(text: str) -> list[Option]:
    found = []
    for line in text.strip().replace("\n    ", " ").splitlines():
        head, _, doc = line.partition(": ")
        name, kind, side, default = head.split(" ")
        parse = one_of(*kind.split("|")) if "|" in kind else globals()[kind]
        sides: tuple[Side, ...] = ("source", "sink") if side == "both" else (cast(Side, side),)
        found.append(Option(name, parse, None if default == "-" else default, doc, sides))
    return found


OPTIONS = _declared(DECLARED)


GONE = {
    "filterpushdown": "Spark keeps one filter for all queries of a load(), which returns wrong rows. Give "
    "publishedFrom, publishedBefore, keys, startingOffsets, endingOffsets instead, which apply to one load()"
}
"""Former options, and why each was removed."""


def declared(side: Side) -> list[Option]:
    """Return the options of this side."""
    return [each for each in OPTIONS if side in each.sides]


def parse(given: Mapping[str, str], side: Side) -> dict[str, Any]:
    """Parse all options of a side, with defaults, by their declared names.

    Raises:
        BadConfiguration: an option is unknown or wrong; the text names it and its allowed values.
    """
    known = {each.name.lower(): each for each in declared(side)}
    out = {each.name: None if each.default is None else each.parse(each.default) for each in known.values()}
    for name, value in given.items():
        option = known.get(name.lower())
        if option is None:
            raise BadConfiguration(_unknown(name, side))
        try:
            out[option.name] = option.parse(str(value))
        except ValueError as error:
            raise BadConfiguration(f"option {option.name} is {value!r}; it takes {error}") from None
    if side == "source":
        _require_sound(out)
    return out


def _require_sound(options: dict[str, Any]) -> None:
    """Raises BadConfiguration: two options contradict each other."""
    since, before = options["publishedFrom"], options["publishedBefore"]
    if since is not None and before is not None and since > before:
        raise BadConfiguration("publishedFrom is after publishedBefore: no message is in between")
    if options["valueFormat"] in ("bytes", "schema") and options["valueSchema"] is not None:
        raise BadConfiguration("valueSchema is for valueFormat=json; leave one of them out")


def _unknown(name: str, side: Side) -> str:
    known = sorted(each.name for each in declared(side))
    lowered = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), lowered, 1, 0.6)
    meant = f"; did you mean {lowered[near[0]]}?" if near else "."
    others = [each.name for each in OPTIONS if side not in each.sides and each.name.lower() == name.lower()]
    if name.lower() in GONE:
        meant = f": {GONE[name.lower()]}."
    if others:
        meant = f"; it is an option of the {'sink' if side == 'source' else 'source'}."
    return f"the {side} of holdfast has no option {name!r}{meant} It has: {', '.join(known)}"


def table(side: Side) -> str:
    """Return the options as a Markdown table for the documentation."""
    rows = ["| option | default | what it does |", "|---|---|---|"]
    for each in declared(side):
        rows.append(f"| `{each.name}` | {each.default or ''} | {each.doc} |")
    return "\n".join(rows)
