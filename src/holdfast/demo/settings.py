"""The options of `holdfast demo`, and the directory of a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

TOPIC = "persistent://public/default/measurements"
CALIBRATED = "persistent://public/default/calibrated"
LEVELS = "persistent://public/default/levels"
DASHBOARD = "dashboard"
JAVA = {"spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}
"""Few cores, and a short life: the second compiler of Java would not earn what it costs."""


@dataclass(frozen=True)
class Settings:
    """One run."""

    seconds: float = 60.0
    rate: float = 2_000.0
    """Messages per second of all sensors and gateways together."""
    sensors: int = 3
    gateways: int = 2
    consumers: int = 2
    chaos: bool = True
    keep: bool = False
    """Leave data, archive and records where they are."""
    to: Path | None = None
    """Where the report page goes; None: a directory of its own, which stays."""


class Places:
    """The directory of a run."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.data = root / "data"
        self.archive = root / "archive"
        self.windows = root / "windows"
        self.checkpoint = root / "checkpoint"
        self.logs = root / "logs"
        self.records = root / "records"
        """The confirmed numbers of each producer."""
        self.runtime = root / "shm"
        """The shared memory of this run."""
        self.sign = root / "spark.batch"
        """The Spark stream has done a batch in this life."""
        self.ending = root / "ending"
        """No producer publishes any more: Spark takes the rest, and accounts for it."""
        self.said = root / "steps"
        """The steps of that, a line each."""
        self.report = root / "report.html"
        self.account = root / "account.json"
