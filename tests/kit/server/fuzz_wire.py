"""Fuzz the input of a connection, guided by code coverage. `make fuzz-wire`.

    python -m tests.kit.server.fuzz_wire                  # one minute
    python -m tests.kit.server.fuzz_wire --seconds 3600

libFuzzer mutates valid streams, under sanitizers; native/tests/wire/wire_judge.hpp judges the outcome. Its
corpus stays in build/fuzz-wire, where the next run starts. An allocation may not be much larger than a frame,
all memory is at most 512 MB, and a stream may take five seconds.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast import _core
from holdfast.protocol import pulsar_pb2 as pb
from tests.kit import KIT, ROOT
from tests.kit.server.pulsar_recorder import frame_of

FLAGS = ["-std=c++20", "-O1", "-g", "-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all"]
KEPT = KIT / "server" / "streams"
"""Findings of earlier nights; native/tests/wire/test_wire_corpus.cpp replays them in every run."""
WANTED = "no clang++ here has libFuzzer and its sanitizers; run .ci/nightly-tools to install them"
FINDINGS = ("crash-*", "leak-*", "oom-*", "timeout-*")
"""The prefixes of libFuzzer's files with failing streams."""


@dataclass(frozen=True)
class Report:
    runs: int
    covered: int
    """Edges of the code that were reached."""
    failure: str
    """The output of the fuzzer, if it found a fault."""


def compiler() -> str | None:
    """Return a clang++ that has libFuzzer, or None."""
    folders = [Path(folder) for folder in os.get_exec_path()]
    numbered = {path.name for folder in folders for path in folder.glob("clang++-[0-9]*")}
    newest_first = sorted(numbered, key=lambda name: -int(re.sub(r"\D", "", name)))
    for name in ("clang++", *newest_first):
        found = shutil.which(name)
        if found is None:
            continue
        probe = [found, "-fsanitize=fuzzer,address", "-x", "c++", "-", "-o", "/dev/null"]
        text = 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }'
        if subprocess.run(probe, input=text, text=True, capture_output=True).returncode == 0:
            return found
    return None


def seeds() -> Iterator[bytes]:
    """Return valid streams. The first byte says how they arrive: see judge_stream."""
    kind = pb.BaseCommand

    def command(type_: Any, **body: Any) -> bytes:
        return frame_of(kind(type=type_, **body))

    def send(entry: bytes, **more: Any) -> bytes:
        body = pb.CommandSend(producer_id=1, sequence_id=7, **more)
        return frame_of(kind(type=kind.SEND, send=body), entry)

    def ack(*ids: pb.MessageIdData, **more: Any) -> bytes:
        more.setdefault("ack_type", pb.CommandAck.Individual)
        return command(kind.ACK, ack=pb.CommandAck(consumer_id=2, message_id=ids, **more))

    def entry(**fields: Any) -> bytes:
        metadata = pb.MessageMetadata(producer_name="p", sequence_id=7, publish_time=9, **fields)
        rest = struct.pack(">I", metadata.ByteSize()) + metadata.SerializeToString() + b"payload"
        return struct.pack(">HI", 0x0E01, _core.crc32c(rest)) + rest

    pair = pb.KeyValue(key="k", value="v")
    one = _core.encode_messages([b"alone"], "p", 7, 9, key="k", properties={"a": "b"})[0]
    batch = _core.encode_messages([b"a", b"", b"ccc"], "p", 7, 9, key=b"\0", ordering_key=b"o", batch=3)[0]
    chunk = entry(uuid="u", chunk_id=0, num_chunks_from_msg=2, total_chunk_msg_size=14, properties=[pair])
    secret = pb.EncryptionKeys(key="k", value=b"v", metadata=[pair])
    sealed = entry(
        compression=pb.ZSTD, uncompressed_size=70, num_messages_in_batch=5, encryption_keys=[secret]
    )
    some = pb.MessageIdData(ledgerId=7, entryId=3, ack_set=[-2, 1], batch_size=65, batch_index=1)
    streams = [
        send(one) + send(batch, num_messages=3, highest_sequence_id=9),
        send(chunk, is_chunk=True) + send(sealed, num_messages=5) + send(one[6:]),
        send(entry(txnid_least_bits=1, txnid_most_bits=2, null_value=True, schema_version=b"1")),
        ack(pb.MessageIdData(ledgerId=7, entryId=1), pb.MessageIdData(ledgerId=7, entryId=2), some),
        ack(some, request_id=5) + ack(some, ack_type=pb.CommandAck.Cumulative, txnid_least_bits=1),
        command(kind.FLOW, flow=pb.CommandFlow(consumer_id=2, messagePermits=1000)) * 2,
        command(kind.PING, ping=pb.CommandPing()),
    ]
    for how in (0, 1, 9, 21):
        yield from (bytes([how]) + stream for stream in streams)
        yield bytes([how]) + b"".join(streams)


def write_corpus(folder: Path) -> Path:
    """Write the valid streams, and earlier findings, into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, stream in enumerate(seeds()):
        (folder / f"seed-{number}").write_bytes(stream)
    for kept in KEPT.glob("*"):
        shutil.copy(kept, folder / f"kept-{kept.name}")
    return folder


def stream_of(note: Path) -> bytes:
    """Return the stream that test_wire_corpus.cpp was judging: its size, and its bytes."""
    data = note.read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    return data[8 : 8 + size]


def keep_stream(note: Path, to: Path = KEPT) -> str:
    """Keep the stream on which the native test has failed; return its name."""
    stream = stream_of(note)
    name = f"random-{hashlib.sha256(stream).hexdigest()[:16]}"
    to.mkdir(exist_ok=True)
    (to / name).write_bytes(stream)
    return name


def keep_findings(folder: Path, binary: Path) -> list[str]:
    """Copy the fuzzer's findings, minimized, to where every run replays them."""
    names = []
    for found in sorted(path for pattern in FINDINGS for path in folder.glob(pattern)):
        short = found.with_name(f"short-{found.name}")
        subprocess.run(
            [
                str(binary),
                "-minimize_crash=1",
                "-max_total_time=60",
                f"-exact_artifact_path={short}",
                str(found),
            ],
            capture_output=True,
        )
        KEPT.mkdir(exist_ok=True)
        shutil.copy(short if short.exists() else found, KEPT / found.name)
        names.append(found.name)
        found.unlink()
        short.unlink(missing_ok=True)
    return names


def build(folder: Path, clang: str, native: Path) -> Path:
    binary = folder / "fuzz"
    source = native / "fuzz/fuzz_wire.cpp"
    subprocess.run([clang, *FLAGS, f"-I{native}", str(source), "-o", str(binary)], check=True)
    return binary


def fuzz(
    folder: Path,
    clang: str,
    seconds: int,
    seed: int = 0,
    native: Path = ROOT / "native",
    runs: int = -1,
) -> Report:
    """Fuzz for a time, or a number of streams; the folder keeps the corpus."""
    corpus = write_corpus(folder / "corpus")
    options = {
        "max_total_time": seconds,
        "runs": runs,
        "seed": seed,
        "max_len": 70_000,
        "len_control": 300,
        "timeout": 5,
        "rss_limit_mb": 512,
        "malloc_limit_mb": 16,
        "artifact_prefix": f"{folder}/",
        "print_final_stats": 1,
        "verbosity": 1,
    }
    arguments = [f"-{name}={value}" for name, value in options.items()]
    done = subprocess.run(
        [str(build(folder, clang, native)), *arguments, str(corpus)],
        capture_output=True,
        text=True,
        errors="replace",
    )
    told = done.stderr
    executed = re.search(r"stat::number_of_executed_units: (\d+)", told)
    covered = [int(number) for number in re.findall(r"cov: (\d+)", told)]
    failure = "" if done.returncode == 0 else told[-6000:]
    return Report(int(executed[1]) if executed else 0, max(covered, default=0), failure)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0, help="0: a random one")
    options = parser.parse_args()
    clang = compiler()
    if clang is None:
        print(f"{WANTED}; native/tests/wire/test_wire_corpus.cpp does without")
        return 2
    folder = ROOT / "build/fuzz-wire"
    report = fuzz(folder, clang, options.seconds, options.seed)
    print(f"{report.runs:,} streams, {report.covered} places of the code reached")
    if report.failure:
        print(report.failure)
        print("kept:", *keep_findings(folder, folder / "fuzz"))
    return 1 if report.failure else 0


if __name__ == "__main__":
    sys.exit(main())
