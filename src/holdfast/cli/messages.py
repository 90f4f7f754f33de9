"""`holdfast queue peek|put|get`: the messages in a queue."""

from __future__ import annotations

import argparse
import codecs
import errno
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice, repeat
from pathlib import Path
from typing import Any

from holdfast import Closed, HoldfastError, Message, Queue
from holdfast.cli import parsing, segments
from holdfast.cli.output import tell
from holdfast.cli.parsing import Subparsers, Usage, command, declare
from holdfast.formatting import age_words, plural

PEEK = """\
Shows the next messages without taking them, and without attaching to the queue.
With --all also messages that a consumer holds (TAKEN) and those that are being
written (RESERVED)."""

PUT = """\
Puts a message, or several. The data is the argument, or a file, or stdin.

  holdfast queue put orders hello            the five bytes "hello"
  holdfast queue put orders --file photo.jpg the file as one message
  date | holdfast queue put orders           all of stdin as one message
  tail -F log | holdfast queue put orders --lines   every line a message, without its newline

Waits while the queue is full, unless --timeout says otherwise."""

GET = """\
Gets messages and writes them to stdout as they are. A message is settled after
the write succeeded; if it fails (a full disk, a closed pipe) it goes back to
the queue for another consumer. In a terminal, and with --lines, a newline
follows each message.

Waits while the queue is empty, unless --timeout says otherwise. --follow goes
on until the queue is closed and empty."""

WAITING = ("READY", "RETRY")
WIDTH = 16
NAMED = {"name": parsing.queue}


def add(verbs: Subparsers) -> None:
    parser = command(verbs, "peek", "show the next messages without taking them", PEEK, peek)
    declare(parser, NAMED, count=10, bytes=64)("""
        name NAME
        --count N: at most N messages (default 10)
        --bytes SIZE: bytes shown of each message (default 64)
        --all: also messages that other processes hold or write
        """)

    parser = command(verbs, "put", "put messages", PUT, put)
    declare(parser, NAMED, count=1)("""
        name NAME
        data [DATA]: the message
        --file FILE: send a file as one message; - is stdin
        --lines: send every line of stdin as a message
        --count N: put the message N times (default 1)
        --timeout S: wait at most S seconds for room (0: do not wait)
        """)

    parser = command(verbs, "get", "receive messages", GET, get)
    declare(parser, NAMED)("""
        name NAME
        --count N: number of messages (default 1)
        --follow: continue until the queue is closed and empty
        --timeout S: wait at most S seconds for each message (0: do not wait)
        """)
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--hex", action="store_true", help="print hexadecimal digits, one message per line")
    shape.add_argument("--lines", action="store_true", help="print a newline after each message")


def peek(options: argparse.Namespace) -> int:
    segments.stats(options.directory, options.name)  # says what is wrong with a queue that cannot be read
    shown: Iterator[dict[str, Any]] = segments.blocks(options.directory, options.name, options.bytes)
    shown = (block for block in shown if options.all or block["state"] in WAITING)
    found = 0
    for block in islice(shown, options.count):
        found += 1
        tell(options, peek_record(block), "\n".join(peek_lines(block)))
    if found == 0 and not options.json:
        print("no message waits" if not options.all else "the queue is empty")
    return 0


def peek_record(block: dict[str, Any]) -> dict[str, Any]:
    payload = block.get("payload")
    return {
        "position": block["position"],
        "state": block["state"],
        "size": block.get("size"),
        "redelivered": block["deliveries"],
        "age_s": age_s(block),
        "owner_slot": None if block["state"] in WAITING else block["owner"],
        "fault": block.get("fault"),
        **(
            {"hex": None, "text": None}
            if payload is None
            else data_record(payload, len(payload) == block["size"])
        ),
    }


def age_s(block: dict[str, Any]) -> float | None:
    """Since the put; of a message that is being written, since its space was claimed."""
    if "time" in block:
        return max(0.0, round(time.time() - int(block["time"]) / 1e9, 3))
    return None if block["age_ms"] is None else int(block["age_ms"]) / 1000


def peek_lines(block: dict[str, Any]) -> list[str]:
    age = age_s(block)
    parts = [f"position {block['position']}", block["state"]]
    if "size" in block:
        parts.append(plural(block["size"], "byte"))
    parts.append(f"redelivered {block['deliveries']}")
    if age is not None:
        parts.append(f"put {age_words(age)} ago" if "time" in block else f"claimed {age_words(age)} ago")
    if block["state"] not in WAITING:
        parts.append(f"held by slot {block['owner']}")
    if block.get("fault") is not None:
        parts.append(f"DAMAGED: {block['fault']} of its header does not fit")
    lines = ["  ".join(parts)]
    payload = block.get("payload") or b""
    lines += dump(payload)
    if "size" in block and len(payload) < block["size"]:
        lines.append(f"  … {plural(block['size'] - len(payload), 'more byte')}")
    return lines


def dump(data: bytes) -> list[str]:
    """Hexadecimal and text, side by side."""
    rows = (data[at : at + WIDTH] for at in range(0, len(data), WIDTH))
    return [
        f"  {row.hex(' '):{3 * WIDTH}} {''.join(chr(byte) if 32 <= byte < 127 else '.' for byte in row)}"
        for row in rows
    ]


def data_record(data: bytes, whole: bool = True) -> dict[str, str | None]:
    """Return bytes for JSON: as hex, and as text where they are UTF-8, perhaps cut."""
    try:
        return {"hex": data.hex(), "text": codecs.getincrementaldecoder("utf-8")().decode(data, final=whole)}
    except UnicodeDecodeError:
        return {"hex": data.hex(), "text": None}


def put(options: argparse.Namespace) -> int:
    if sum((options.data is not None, options.file is not None, options.lines)) > 1:
        raise Usage("DATA, --file and --lines exclude each other")
    done = 0
    with Queue.open(options.name, directory=options.directory) as queue:
        try:
            for data in payloads(options):
                queue.put(data, timeout=options.timeout)
                done += 1
        except HoldfastError as error:
            if done:
                error.add_note(f"{plural(done, 'message')} had been put before")
            raise
    return tell(options, {"put": done}, f"put {plural(done, 'message')}")


def payloads(options: argparse.Namespace) -> Iterable[bytes]:
    if options.lines:
        for line in sys.stdin.buffer:
            yield from repeat(line.removesuffix(b"\n"), options.count)
        return
    yield from repeat(whole(options), options.count)


def whole(options: argparse.Namespace) -> bytes:
    """Read the one message that was given: the argument, a file, or all of stdin."""
    if options.data is not None:
        return os.fsencode(options.data)
    if options.file not in (None, "-"):
        return Path(options.file).read_bytes()
    if sys.stdin.isatty():
        print("the message, please; Ctrl-D ends it", file=sys.stderr)
    return sys.stdin.buffer.read()


def get(options: argparse.Namespace) -> int:
    if sys.stdout is None:  # and its number will soon belong to the queue's own file
        raise OSError(errno.EBADF, "stdout is closed; nothing was taken")
    left = options.count if options.count is not None else sys.maxsize if options.follow else 1
    with Queue.open(options.name, directory=options.directory) as queue:
        for _ in range(left):
            try:
                message = queue.get(timeout=options.timeout)
            except Closed:
                if options.follow:
                    return 0
                raise
            with message:  # settles after the write; an error in it gives the message back
                write(rendered(message, options))
    return 0


def rendered(message: Message, options: argparse.Namespace) -> bytes:
    data = bytes(message.data)
    if options.json:
        record = {
            "position": message.position,
            "time": datetime.fromtimestamp(message.time / 1e9, UTC).isoformat(),
            "redelivered": message.redelivered,
            "size": len(data),
            **data_record(data),
        }
        return json.dumps(record, ensure_ascii=False).encode() + b"\n"
    return shaped(data, options)


def shaped(data: bytes, options: argparse.Namespace) -> bytes:
    """Give a message the form that --hex or --lines asks for."""
    if options.hex:
        return data.hex().encode() + b"\n"
    return data + (b"\n" if options.lines or sys.stdout.isatty() else b"")


def write(data: bytes) -> None:
    """To stdout without a buffer between: when this returns, the bytes are out."""
    view = memoryview(data)
    while view:
        view = view[os.write(sys.stdout.fileno(), view) :]
