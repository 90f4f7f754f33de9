"""Run the demo without Spark: `python kit/spark/rig_stub.py demo ...`. The rest is real.

Instead of the Spark job there is one that waits and then trusts the records. With `--hang` as the first
argument it waits forever.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

from holdfast.demo import show
from holdfast.demo.closing import Account
from holdfast.demo.records import confirmed
from holdfast.demo.settings import Places
from tests.kit import module_command


def job(places: Places, hang: bool) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    # Like Java, this one ends when the other end of its input is closed.
    subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    while not any(path.stat().st_size for path in places.records.glob("*.sent")):
        time.sleep(0.02)
    places.sign.touch()
    while hang or not places.ending.exists():
        time.sleep(0.02)
    sent = sum(confirmed(places.records).values())
    places.said.write_text("counting\n")
    places.report.write_text("<svg")
    account = Account(sent, 0, sent, sent, 2 * sent, lost=0, duplicated=0, out_of_order=0, strange=0)
    places.account.write_text(json.dumps(asdict(account)))


def main() -> None:
    role, *rest = sys.argv[1:]
    if role in ("job", "hang"):
        return job(Places(Path(rest[0])), role == "hang")
    from holdfast.cli import main as command

    show.JOB = [*module_command(__file__), "hang" if role == "--hang" else "job"]
    if role == "--hang":
        show.AUDIT_S = 0.5
    else:
        rest = [role, *rest]
    sys.exit(command(rest))


if __name__ == "__main__":
    main()
