"""Mutants of the queue: each changes a header, and the explorer must catch it.

Each names a text that must occur exactly once in its file, so that a mutant always changes something. Each
also names the configuration that kills it; the unchanged queue passes it (mutants/test_explorer.py).
One explorer is built with all of them, and told which one is in force (kit/native.py).
`python -m tests.kit.queue.mutants` prints the table of results; NAME --schedule shows what kills one.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.kit import ROOT, native
from tests.kit.native import CHOICE, Mutant

NATIVE = ROOT / "native"
BUILD = ROOT / "build" / "model"
Mutants = tuple[Mutant, ...]
OBJECTS = BUILD / "CMakeFiles" / "explore.dir" / "native" / "model"


@dataclass(frozen=True)
class Verdict:
    mutant: Mutant
    check: str  # the check that caught it; empty: it survived
    states: int
    violation: str
    schedule: tuple[str, ...]

    @property
    def caught(self) -> bool:
        return self.check != ""


MUTANTS = (
    # An order weakened: seen through the declared orders; the exploration itself is sequentially consistent.
    Mutant(
        "commit-relaxed",
        "commit publishes the payload without release",
        "queue/queue.hpp",
        """                       geometry.word(claim.position, first_length, State::ready, me),
                       std::memory_order_release)""",
        """                       geometry.word(claim.position, first_length, State::ready, me),
                       MUTANT ? std::memory_order_relaxed : std::memory_order_release)""",
        "wrap",
    ),
    Mutant(
        "look-relaxed",
        "descriptors are read without acquire",
        "queue/state.hpp",
        "return memory.load(descriptor(position), std::memory_order_acquire);",
        "return memory.load(descriptor(position), std::memory_order_relaxed);",
        "padding",
    ),
    Mutant(
        "settle-relaxed",
        "settle gives the space up without release",
        "queue/queue.hpp",
        "Geometry::with(taken.word, State::done, me), std::memory_order_release)",
        """Geometry::with(taken.word, State::done, me),
                               MUTANT ? std::memory_order_relaxed : std::memory_order_release)""",
        "padding",
    ),
    Mutant(
        "advance-relaxed",
        "H, R and T are moved without release",
        "queue/state.hpp",
        "return memory.cas(word, expected, sealed(to), std::memory_order_acq_rel);",
        "return memory.cas(word, expected, sealed(to), std::memory_order_relaxed);",
        "two-producers-wrap",
    ),
    Mutant(
        "position-relaxed",
        "H, R and T are read without acquire",
        "queue/state.hpp",
        "u64 value = memory.load(word, std::memory_order_acquire);",
        "u64 value = memory.load(word, MUTANT ? std::memory_order_relaxed : std::memory_order_acquire);",
        "two-producers-wrap",
    ),
    Mutant(
        "repair-relaxed",
        "recovery hands a dead writer's space on without release",
        "queue/recovery.hpp",
        "q.memory.cas(q.descriptor(position), word, becomes, std::memory_order_acq_rel)",
        "q.memory.cas(q.descriptor(position), word, becomes, "
        "MUTANT ? std::memory_order_relaxed : std::memory_order_acq_rel)",
        "dead-writer-laps",
    ),
    # A check dropped.
    Mutant(
        "commit-blind",
        "commit stores READY without asking whether the block was fenced",
        "queue/queue.hpp",
        "        u64 expected = claim.word;\n        if (memory.cas(descriptor(claim.position), expected,",
        "        u64 expected =\n"
        "            MUTANT ? memory.load(descriptor(claim.position), std::memory_order_acquire)\n"
        "                   : claim.word;\n"
        "        if (memory.cas(descriptor(claim.position), expected,",
        "fence",
    ),
    Mutant(
        "newer-tag",
        "a head that is a lap old is not noticed",
        "queue/queue.hpp",
        "if (block.look == Look::moved) {  // our `head` is a lap old",
        "if (!MUTANT && block.look == Look::moved) {  // our `head` is a lap old",
        "laps-put-quick",
    ),
    Mutant(
        "no-room",
        "put does not ask whether the ring has room",
        "queue/queue.hpp",
        "tail_seen_ + geometry.granules()",
        "tail_seen_ + geometry.granules() + (MUTANT ? u64{1} << 40 : 0)",
        "wrap",
    ),
    Mutant(
        "no-room-for-end",
        "put takes the granule that is kept for the end of the stream",
        "queue/queue.hpp",
        """            if (head + extent + 1 > tail_seen_ + geometry.granules()) {
                const Look room = make_room(head + extent + 1, probe);""",
        """            if (head + extent + !MUTANT > tail_seen_ + geometry.granules()) {
                const Look room = make_room(head + extent + !MUTANT, probe);""",
        "close-full",
    ),
    Mutant(
        "no-proof",
        "recovery does not ask the kernel whether the owner is dead",
        "shm/lock_bytes.hpp",
        "if (owner == me || !memory.take_byte(owner)) return false;",
        "if (owner == me) return false;\n        memory.take_byte(owner);",
        "wrap",
    ),
    Mutant(
        "fence-frees",
        "a fenced writer's space is recycled while it lives",
        "queue/queue.hpp",
        "Geometry::with(word, State::fenced, Geometry::owner(word))",
        "Geometry::with(word, State::skip, Geometry::owner(word))",
        "fence",
    ),
    Mutant(
        "no-padding",
        "a block may cross the end of the ring",
        "queue/queue.hpp",
        "bool pads = length > rest;",
        "bool pads = !MUTANT && length > rest;",
        "padding",
    ),
    Mutant(
        "old-read",
        "a read position that is a lap old is not noticed",
        "queue/queue.hpp",
        "if (block.look != Look::found) return block.look; switch",
        "if (block.look != Look::found && !(MUTANT && block.look == Look::moved)) return block.look;\n"
        "            switch",
        "laps-take-quick",
    ),
    Mutant(
        "pass-reserved",
        "consumers pass by a block that is still being written",
        "queue/queue.hpp",
        "blocker = {block.owner, position, block.word}; return Look::blocked;",
        "break;",
        "wrap",
    ),
    Mutant(
        "repair-anybody",
        "recovery repairs the blocks of the living, too",
        "queue/recovery.hpp",
        "if (q.geometry.tag(word, position) != Tag::current || Geometry::owner(word) != owner) return;",
        "if (q.geometry.tag(word, position) != Tag::current) return;",
        "two-consumers",
    ),
    Mutant(
        "recover-from-read",
        "recovery looks from the read position on, not from the tail",
        "queue/recovery.hpp",
        "Start start{q.words.tail, 0};",
        "Start start{MUTANT ? q.words.read : q.words.tail, 0};",
        "reuse-consumer",
    ),
    Mutant(
        "closed-early",
        "the end is reported while another process holds a message that may come back",
        "queue/queue.hpp",
        "blocker = {block.owner, position, block.word}; comes_back = true;",
        "blocker = {block.owner, position, block.word};\n                comes_back |= !MUTANT;",
        "close-held",
    ),
    Mutant(
        "dead-not-asked",
        "a waiting consumer does not ask about the participants that took the messages before",
        "queue/queue.hpp",
        "if (block.owner != asked && recover_if_dead(block.owner, position, block.word)) return Look::moved;",
        "",
        "recover-death",
    ),
    Mutant(
        "closed-aside",
        "the end is reported while a message is left aside",
        "queue/queue.hpp",
        "return Look::moved; } comes_back = true;",
        "return Look::moved; } comes_back |= !MUTANT;",
        "poison-close",
    ),
    Mutant(
        "blocked-looks-no-further",
        "a consumer that waits behind a living writer does not ask about dead readers",
        "queue/queue.hpp",
        "if (clear_the_way(blocker)) return Look::moved;",
        "if (clear_the_way(blocker)) return Look::moved;\n            if (MUTANT) return Look::nothing;",
        "two-consumers",
    ),
    # A step left out or done in another order.
    Mutant(
        "head-first",
        "the head is moved before the block is claimed",
        "queue/queue.hpp",
        "            u64 wanted = geometry.word(head, extent, pads ? State::skip : State::reserved, me);",
        "            if (MUTANT) advance(words.head, head, head + extent);\n"
        "            u64 wanted = geometry.word(head, extent, pads ? State::skip : State::reserved, me);",
        "wrap",
    ),
    Mutant(
        "tail-before-read",
        "the tail may pass the read position",
        "queue/queue.hpp",
        "if (position >= read) {  // I2: R goes first",
        "if (!MUTANT && position >= read) {  // I2: R goes first",
        "dead-writer-laps",
    ),
    Mutant(
        "commit-first",
        "a put becomes visible before its payload is written",
        "queue/queue.hpp",
        """        write(claim, payloads, time, full_checksum);
        return publish(claim, payloads);""",
        """        if (!MUTANT) write(claim, payloads, time, full_checksum);
        const Verdict verdict = publish(claim, payloads);
        if (MUTANT && verdict == Verdict::ok) write(claim, payloads, time, full_checksum);
        return verdict;""",
        "wrap",
    ),
    Mutant(
        "return-unannounced",
        "a message given back is not announced",
        "queue/queue.hpp",
        "        memory.at(QueuePoint::back_returned);\n        announce_return();",
        "        memory.at(QueuePoint::back_returned);",
        "back",
    ),
    Mutant(
        "scan-reads-late",
        "the scan for returned messages remembers a count read after it, not before",
        "queue/queue.hpp",
        "if (!leaves_some) memory.store(words.scanned, made, std::memory_order_release);",
        "if (!leaves_some) memory.store(words.scanned, memory.load(words.made, std::memory_order_acquire),\n"
        "                                       std::memory_order_release);",
        "back-spinning",
    ),
    Mutant(
        "scan-to-read",
        "the scan for returned messages ends at the read position, which another may be moving",
        "queue/queue.hpp",
        "u64 position = start.position; for (;;) {",
        """u64 position = start.position, read = 0;
        if (MUTANT && !load_position(words.read, read)) return Look::corrupt;
        for (;;) {
            if (MUTANT && position >= read) break;""",
        "return-behind-read",
    ),
    Mutant(
        "count-not-kept",
        "a consumer takes a returned message without leaving its count for a recoverer",
        "queue/queue.hpp",
        "else if (keep_count(position, block.word);",
        "else if (MUTANT ? void() : keep_count(position, block.word);",
        "count-deaths",
    ),
    Mutant(
        "count-aba",
        "what came back is taken with the count of an earlier look",
        "queue/queue.hpp",
        "} else if (keep_count(position, block.word); memory.cas(",
        """} else if (keep_count(position, block.word);
                           (!MUTANT || (block.word = load_descriptor(position),
                                        geometry.tag(block.word, position) == Tag::current &&
                                            Geometry::state(block.word) == State::retry)) && memory.cas(""",
        "count-twice",
    ),
    Mutant(
        "count-given-back",
        "giving back forgets the deliveries before",
        "queue/queue.hpp",
        "Geometry::returned(taken.word, taken.redelivered + (counts ? 1 : 0))",
        "Geometry::returned(taken.word, counts ? 1 : 0)",
        "count-twice",
    ),
    # A field too narrow for the life of a queue.
    Mutant(
        "lap-of-8-bits",
        "a mark has the last 8 bits of its lap",
        "queue/layout.hpp",
        "tag(mark, position) != Tag::current",
        "((mark >> lap_shift() ^ lap(position)) & 0xff) != 0",
        "aged-8",
    ),
    Mutant(
        "lap-of-16-bits",
        "a mark has the last 16 bits of its lap",
        "queue/layout.hpp",
        "tag(mark, position) != Tag::current",
        "((mark >> lap_shift() ^ lap(position)) & 0xffff) != 0",
        "aged-16",
    ),
    Mutant(
        "lap-of-32-bits",
        "a mark has the last 32 bits of its lap",
        "queue/layout.hpp",
        "tag(mark, position) != Tag::current",
        "((mark >> lap_shift() ^ lap(position)) & 0xffffffff) != 0",
        "aged-32",
    ),
    Mutant(
        "lap-of-48-bits",
        "a mark has the last 48 bits of its lap",
        "queue/layout.hpp",
        "tag(mark, position) != Tag::current",
        "((mark >> lap_shift() ^ lap(position)) & 0xffffffffffff) != 0",
        "aged-48",
    ),
    Mutant(
        "positions-without-end",
        "put does not ask whether there are positions left",
        "queue/queue.hpp",
        "if (head + 2 * geometry.granules() > kPositionMax) return Verdict::exhausted;",
        "",
        "last-position",
    ),
    Mutant(
        "returns-in-order",
        "the numbers of returns made and scanned are compared by size, which wraps",
        "queue/queue.hpp",
        "return made != scanned;",
        "return made > scanned;",
        "last-return-wait",
    ),
    Mutant(
        "byte-early",
        "the dead one's byte is dropped before its blocks are repaired",
        "shm/lock_bytes.hpp",
        "    const bool complete = recover();",
        "    if (MUTANT) memory.drop_byte(owner);\n"
        "    const bool complete = recover();\n"
        "    if (MUTANT && !memory.take_byte(owner)) return complete;",
        "reuse-producer",
    ),
    Mutant(
        "inner-missing",
        "put_many leaves the descriptors of its inner blocks out",
        "queue/queue.hpp",
        "if (position != claim.position) {",
        "if (!MUTANT && position != claim.position) {",
        "many",
    ),
    # Recovery decides wrongly.
    Mutant(
        "taken-released",
        "a dead reader's message is dropped although delivery is at least once",
        "queue/recovery.hpp",
        "return delivery == Delivery::at_least_once ? Repair::hand_on : Repair::release;",
        "return delivery == Delivery::at_least_once ? Repair::release : Repair::release;",
        "recover-death",
    ),
    Mutant(
        "taken-handed-on",
        "a dead reader's message is handed on although delivery is at most once",
        "queue/recovery.hpp",
        "return delivery == Delivery::at_least_once ? Repair::hand_on : Repair::release;",
        "return delivery == Delivery::at_least_once ? Repair::hand_on : Repair::hand_on;",
        "at-most-once",
    ),
    Mutant(
        "half-put-shown",
        "a dead writer's block is shown to consumers",
        "queue/recovery.hpp",
        "becomes = Geometry::with(word, State::skip, owner);",
        "becomes = Geometry::with(word, State::ready, owner);",
        "wrap",
    ),
    # Waiting.
    Mutant(
        "no-wake",
        "a bell is rung without waking the sleepers",
        "shm/bell.hpp",
        "            memory.wake(bell);\n            return;",
        "            return;",
        "wait",
    ),
    Mutant(
        "put-silent",
        "a put does not ring for consumers that wait",
        "queue/queue.hpp",
        "ring(verdict == Verdict::ok ? words.data_bell : words.space_bell);",
        "if (verdict != Verdict::ok) ring(words.space_bell);",
        "wait",
    ),
    Mutant(
        "close-silent",
        "close does not ring for consumers that wait",
        "queue/queue.hpp",
        "                memory.at(QueuePoint::close_marked);\n                ring(words.data_bell);",
        "                memory.at(QueuePoint::close_marked);",
        "wait-close",
    ),
    # A fence dropped, an order between atomic words weakened: seen through store buffers or old values.
    Mutant(
        "return-relaxed",
        "a message given back is announced before it is there",
        "queue/state.hpp",
        "memory.fetch_add(words.made, 1, std::memory_order_release);",
        "memory.fetch_add(words.made, 1, std::memory_order_relaxed);",
        "buffers-back",
    ),
    Mutant(
        "claim-acquire",
        "a block is claimed without release",
        "queue/queue.hpp",
        "block.word, wanted, std::memory_order_acq_rel)) {",
        "block.word, wanted, MUTANT ? std::memory_order_acquire : std::memory_order_acq_rel)) {",
        "old-wrap",
    ),
    Mutant(
        "returns-relaxed",
        "the number of returned messages is read without acquire",
        "queue/queue.hpp",
        "memory.load(words.made, std::memory_order_acquire);",
        "memory.load(words.made, MUTANT ? std::memory_order_relaxed : std::memory_order_acquire);",
        "old-back",
    ),
    Mutant(
        "ring-unfenced",
        "a ringer looks for sleepers before its change is visible",
        "shm/bell.hpp",
        "    memory.fence();  // pairs with: listen_to\n    u32 value =",
        "    if (!MUTANT) memory.fence();\n    u32 value =",
        "buffers-wait",
    ),
    Mutant(
        "listen-unfenced",
        "a sleeper looks again before its bit is visible",
        "shm/bell.hpp",
        "    memory.fence();  // pairs with: ring_bell\n    return value;",
        "    if (!MUTANT) memory.fence();\n    return value;",
        "buffers-wait",
    ),
)


def build_explorer() -> Path:
    """Build the explorer as the Makefile does; keep the objects for linking mutants."""
    beside = Path(sys.executable).with_name("cmake")
    cmake = str(beside) if beside.exists() else "cmake"
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two processes of pytest, or two runs, may build at once
        if not (BUILD / "build.ninja").exists():
            configure = [cmake, "-S", str(ROOT), "-B", str(BUILD), "-G", "Ninja", "-DHOLDFAST_MODEL=ON"]
            subprocess.run([*configure, "-DCMAKE_BUILD_TYPE=Release"], check=True, capture_output=True)
        subprocess.run([cmake, "--build", str(BUILD)], check=True, capture_output=True)
    return BUILD / "explore"


def objects() -> list[Path]:
    """Return the object files of the explorer, without those of deleted sources."""
    found = sorted(OBJECTS.rglob("*.o"))
    return [path for path in found if (NATIVE / "model" / path.relative_to(OBJECTS).with_suffix("")).exists()]


def build_broken(mutants: Mutants = MUTANTS, kind: str = "queue") -> tuple[Path, dict[str, int]]:
    """Build an explorer with all mutants; return it, and the number of each."""
    build_explorer()
    with tempfile.TemporaryDirectory(prefix="holdfast-mutants-") as name:
        scratch = Path(name)
        numbers = native.with_all(mutants, scratch)
        total = hashlib.sha256(b"".join(path.read_bytes() for path in objects()))
        for path in sorted(scratch.glob("holdfast/**/*.hpp")):
            total.update(path.read_bytes())
        explorer = BUILD / f"broken-{kind}-{total.hexdigest()[:16]}"
        if not explorer.exists():
            for stale in BUILD.glob(f"broken-{kind}-*"):
                stale.unlink()
            compile_against(scratch, kind).rename(explorer)
    return explorer, numbers


def compile_against(scratch: Path, kind: str) -> Path:
    compiler = os.environ.get("CXX", "c++")
    changed, explorer = BUILD / f"broken.{os.getpid()}.o", BUILD / f"broken.{os.getpid()}"
    include = ["-include", "holdfast/mutant_switch.hpp", "-I", str(scratch), "-I", str(NATIVE)]
    source = ["-c", str(NATIVE / "model" / kind / "model.cpp"), "-o", str(changed)]
    command = [compiler, "-std=c++20", "-O1", "-w", *include, *source]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    same = map(str, (path for path in objects() if path.parts[-2:] != (kind, "model.cpp.o")))
    subprocess.run([compiler, str(changed), *same, "-pthread", "-o", str(explorer)], check=True)
    changed.unlink()
    return explorer


def judge(
    mutant: Mutant,
    explorer: Path,
    number: int,
    configurations: tuple[str, ...] = (),
    schedule: bool = False,
    states: int = 20_000_000,
) -> Verdict:
    """Run the configuration that must kill a mutant; number 0 is the sound queue."""
    result: dict[str, object] = {}
    with tempfile.TemporaryDirectory(prefix="holdfast-mutant-") as scratch:
        for name in configurations or (mutant.program,):
            report = Path(scratch) / "report.json"
            command = [str(explorer), "--config", name, "--json", str(report), "--states", str(states)]
            run = subprocess.run(
                command if schedule else [*command, "--no-schedule"],
                env={**os.environ, CHOICE: str(number)},
                capture_output=True,
                text=True,
            )
            if run.returncode not in (0, 1):
                raise RuntimeError(f"{mutant.name}: {run.stderr}")
            result = json.loads(report.read_text())[0]
            if result["check"]:
                if configurations:
                    print(f"{mutant.name}: killed by {name}, {result['violation']}")
                break
    lines = result["schedule"]
    assert isinstance(lines, list)
    return Verdict(
        mutant,
        str(result["check"]),
        int(str(result["states"])),
        str(result["violation"]),
        tuple(str(line) for line in lines),
    )


def judge_all(some: Mutants = MUTANTS, kind: str = "queue", built: Mutants = ()) -> list[Verdict]:
    explorer, numbers = build_broken(built or some, kind)
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda mutant: judge(mutant, explorer, numbers[mutant.name]), some))


def table(verdicts: list[Verdict]) -> str:
    lines = ["| mutant | fault | configuration | caught by | states |", "|---|---|---|---|---|"]
    for verdict in verdicts:
        mutant = verdict.mutant
        check = verdict.check or "NOT CAUGHT"
        lines.append(
            f"| `{mutant.name}` | {mutant.breaks} | {mutant.program} | {check} | {verdict.states:,} |"
        )
    return "\n".join(lines)


def main(mutants: Mutants = MUTANTS, kind: str = "queue") -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="these mutants (default: all)")
    parser.add_argument("--schedule", action="store_true", help="show the schedule that kills each")
    parser.add_argument("--configuration", action="append", default=[], help="try these instead, in turn")
    arguments = parser.parse_args()
    chosen = tuple(m for m in mutants if not arguments.names or m.name in arguments.names)
    if arguments.schedule or arguments.configuration:
        explorer, numbers = build_broken(mutants, kind)
        for mutant in chosen:
            number = numbers[mutant.name]
            verdict = judge(mutant, explorer, number, tuple(arguments.configuration), arguments.schedule)
            print(f"{mutant.name}: {verdict.violation or 'NOT CAUGHT'}")
            for number, line in enumerate(verdict.schedule, 1):
                print(f"  {number:3}  {line}")
        return 0
    print(table(verdicts := judge_all(chosen, kind, mutants)))
    return 0 if all(verdict.caught for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
