"""Which positions of a topic have a row: the same by path and by address."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast._core import encode_messages
from holdfast.errors import Corrupt
from holdfast.pipeline.jobs.archive_completeness import require_no_row
from holdfast.pipeline.jobs.inputs import Origin
from holdfast.pipeline.sink.rows import parts
from tests.kit.served import served
from tests.kit.spark.pipeline_world import append_entries

FULL = "persistent://public/default/"


def test_which_positions_have_a_row(tmp_path: Path) -> None:
    """By path and URL: a chunked message is at the position of its last chunk."""
    entries = encode_messages([b"a", b"b"], "p", 0, 1_700_000_000_000)
    cut = parts(encode_messages([bytes(3000)], "q", 0, 1_700_000_000_000)[0], 1200)
    assert len(cut) == 3
    append_entries(tmp_path, "t", [entries[0], *cut, entries[1], cut[0]])
    with served(tmp_path, http=True) as server:
        for origin in (Origin(str(tmp_path)), Origin(url=server.http_url)):
            for start, stop, wanted in ((0, 6, [0, 3, 4]), (1, 3, []), (2, 4, [3]), (5, 6, [])):
                found = [at for some in origin.positions(f"{FULL}t", start, stop) for at in some]
                assert found == wanted, (origin, start, stop)
            require_no_row(origin, f"{FULL}t", [(1, 3), (5, 6)])
            with pytest.raises(Corrupt, match="position 3: the topic has a message there"):
                require_no_row(origin, f"{FULL}t", [(1, 4)])
