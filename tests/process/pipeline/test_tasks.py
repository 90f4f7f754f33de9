"""Test which modules a task of Spark loads."""

from __future__ import annotations

import subprocess
import sys


def test_tasks_load_little() -> None:
    """Each of Spark's Python processes pays for what its readers import: no broker, no wire."""
    code = (
        "import sys; import holdfast.pipeline.source.format, holdfast.pipeline.source.stream; "
        "print([name for name in sys.modules if name in ('asyncio', 'holdfast.client', 'pyarrow.flight', "
        "'pyarrow.compute', 'google.protobuf') or name.startswith(('holdfast.broker.', 'holdfast.server'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
