"""Names that users, operators and other programs rely on stay, wherever modules move."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

from holdfast import Queue, names
from holdfast.local import place
from tests.kit import ROOT

LOGGERS = """
holdfast.broker
holdfast.cluster
holdfast.flight
holdfast.group
holdfast.http
holdfast.ingest
holdfast.pipeline.batch
holdfast.pipeline.decoding
holdfast.pipeline.offsets
holdfast.pipeline.progress
holdfast.pipeline.reading
holdfast.pipeline.remote
holdfast.pipeline.sink
holdfast.pipeline.stream
holdfast.pipeline.values
holdfast.server
holdfast.server.taps
holdfast.service
holdfast.store
holdfast.tls
holdfast.wire
"""


def test_loggers() -> None:
    text = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    found = set(re.findall(r'(?:getLogger|\bLog)\("([\w.]+)"\)', text))
    assert found - {"example"} == set(LOGGERS.split())
    assert "getLogger(__name__)" not in text, "a module that moves would change the logger's name"


def test_prefixes_of_runtime_files(runtime_directory: Path) -> None:
    """Processes of two versions find each other's files by these names; operators, too."""
    assert place.FILES == names.INGEST == "holdfast.ingest."
    core = (ROOT / "native/holdfast/log/topics.hpp").read_text()
    assert 'starts_with("holdfast.ingest.")' in core, "names of producers are stored"
    with Queue.create("names", capacity=1 << 12):
        assert (runtime_directory / "holdfast.queue.names").exists()


def test_documented_modules_of_the_pipeline() -> None:
    for name in ("archive", "audit", "compact", "measure", "numbered", "replay", "session"):
        assert importlib.import_module(f"holdfast.pipeline.{name}").__file__
