"""The doctor names damage, its place and what to do; a sound directory passes."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import Locked, NotFound
from holdfast.ledger.files.doctor import Examination, examine, examine_disk
from holdfast.ledger.layout import FILE_HEADER, FORMAT, JOURNAL, LEDGERS, PAGE, SNAPSHOTS
from tests.kit.ledger import doctor_checks as checks
from tests.kit.ledger.doctor_checks import flip
from tests.kit.ledger.store_world import Life, SystemWorld, simulated


async def work(life: Life) -> None:
    for n in range(30):
        life.mixture(n)
    await life.store.snapshot()
    for n in range(30):
        await life.until(life.mixture(n))


def only_fault(found: Examination) -> tuple[str, int | None]:
    grave = [each for each in found.findings if each.grave]
    assert len(grave) == 1, found.faults
    assert grave[0].advice
    assert not found.sound
    return grave[0].file, grave[0].offset


def test_a_sound_directory(world: SystemWorld) -> None:
    world.live(work)
    found = examine(world.path)
    assert found.sound
    assert found.findings == []
    assert (found.last_d, found.snapshot_d, found.clean) == (120, 120, True)
    assert (found.ledgers, found.entries, found.snapshots) == (3, 60, 2)
    assert found.ledger_bytes > 60 * 100
    assert found.record()["sound"] is True


def test_a_directory_after_a_kill(world: SystemWorld) -> None:
    """A killed directory is sound, too: the journal has what the ledgers may lack."""
    world.live(work, close=False)
    before = {path: path.read_bytes() for path in world.path.rglob("*") if path.is_file()}
    found = examine(world.path)
    assert found.sound
    assert (found.last_d, found.snapshot_d, found.clean) == (120, 60, False)
    assert found.journal_rounds == 30
    after = {path: path.read_bytes() for path in world.path.rglob("*") if path.is_file()}
    del before[world.path / "lock"], after[world.path / "lock"]
    assert before == after, "it only looks"


def test_a_torn_tail_is_a_note(world: SystemWorld) -> None:
    world.live(work, close=False)
    checks.a_torn_last_round_is_named(world.path)


@pytest.mark.parametrize("moved", [1, 2], ids=["torn", "damaged"])
def test_a_torn_first_round_is_named_with_its_own_file(world: SystemWorld, moved: int) -> None:
    """Damage in a file's first round is reported at that file.

    It was reported as the end of the file before, by the doctor and by the broker that refuses it.
    """

    async def use(life: Life) -> None:
        await work(life)
        while len(checks.rounds_of(checks.last_file(world.path))) < moved:  # a file may just have begun
            await life.until(life.mixture(0))

    world.live(use, close=False)
    checks.a_torn_first_round_is_named_with_its_own_file(world.path, moved)


def test_damage_of_each_kind_is_named(world: SystemWorld) -> None:
    """I31: damage is reported with file and offset."""
    world.live(work)
    ledger = world.path / LEDGERS / "0000000000000001.data"
    flip(ledger, 200)
    file, offset = only_fault(examine(world.path))
    assert file == f"{LEDGERS}/{ledger.name}"
    assert offset is not None
    assert FILE_HEADER <= offset <= 200
    flip(ledger, 200)

    flip(ledger, 10)
    assert only_fault(examine(world.path)) == (f"{LEDGERS}/{ledger.name}", 0)
    flip(ledger, 10)

    index = world.path / LEDGERS / "0000000000000002.index"
    flip(index, FILE_HEADER + 8 * 3)
    found = examine(world.path)
    assert only_fault(found) == (f"{LEDGERS}/{index.name}", FILE_HEADER + 8 * 3)
    assert "remove" in found.faults[0]
    flip(index, FILE_HEADER + 8 * 3)

    ledger.rename(world.path / "away")
    assert only_fault(examine(world.path)) == (f"{LEDGERS}/{ledger.name}", None)
    (world.path / "away").rename(ledger)

    flip(world.path / FORMAT, 40)
    assert only_fault(examine(world.path)) == (FORMAT, 0)
    flip(world.path / FORMAT, 40)
    assert examine(world.path).sound


def test_damage_in_the_journal(world: SystemWorld) -> None:
    async def rounds(life: Life) -> None:
        for n in range(8):
            life.mixture(n)
            await life.store.flush()  # a round each

    world.live(rounds, close=False)
    numbers = sorted(path for path in (world.path / JOURNAL).iterdir() if not path.name.startswith("spare"))
    path = numbers[-1]
    content = path.read_bytes()
    places = [at for at in range(PAGE, len(content), PAGE) if content[at : at + 4] == b"HF\3\1"]
    assert len(places) == 8
    flip(path, places[-4])
    file, offset = only_fault(examine(world.path))
    assert (file, offset) == (f"{JOURNAL}/{path.name}", places[-4])


def test_what_can_be_mended_is_a_note(world: SystemWorld) -> None:
    world.live(work)
    newest = sorted((world.path / SNAPSHOTS).iterdir())[-1]
    flip(newest, 300)
    (world.path / LEDGERS / "0000000000000001.index").unlink()
    (world.path / LEDGERS / "0000000000000000.data").write_bytes(b"left")
    (world.path / LEDGERS / "readme").write_bytes(b"left")
    (world.path / SNAPSHOTS / "0000000000000001.new").write_bytes(b"half")
    (world.path / JOURNAL / "hello").write_bytes(b"")
    found = examine(world.path)
    assert found.sound, found.faults
    told = " ".join(found.notes)
    for name in (newest.name, "0001.index", "0000.data", "readme", "0001.new", "hello"):
        assert name in told
    world.live()


def test_who_may_be_examined(world: SystemWorld, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="not a data directory"):
        examine(tmp_path)
    assert not (tmp_path / "lock").exists(), "it leaves nothing in what is not its own"

    async def use(life: Life) -> None:
        with pytest.raises(Locked):
            await examine_disk(world.disk())

    world.live(use)
    (world.path / FORMAT).unlink()
    assert only_fault(examine(world.path)) == (FORMAT, None)


def test_on_a_simulated_disk() -> None:
    with simulated(1) as world:
        world.live(work, close=False)
        world.crash()
        found = world.run(lambda disk, clock, randomness: examine_disk(disk))
        assert found.sound
