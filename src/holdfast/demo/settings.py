"""What `holdfast demo` was asked for, and where its things are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

TOPIC = "persistent://public/default/measurements"
CALIBRATED = "persistent://public/default/calibrated"
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


@dataclass(frozen=True)
class Places:
    """The directory of a run."""

    root: Path

    @property
    def data(self) -> Path:
        """The broker's."""
        return self.root / "data"

    @property
    def records(self) -> Path:
        """What was confirmed to whom."""
        return self.root / "records"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def archive(self) -> Path:
        return self.root / "archive"

    @property
    def windows(self) -> Path:
        """What was measured, aggregated: Parquet."""
        return self.root / "windows"

    @property
    def checkpoint(self) -> Path:
        """Of the Spark stream."""
        return self.root / "checkpoint"

    @property
    def sign(self) -> Path:
        """The Spark stream has done a batch in this life."""
        return self.root / "spark.batch"

    @property
    def runtime(self) -> Path:
        """The shared memory of this run."""
        return self.root / "shm"

    @property
    def report(self) -> Path:
        return self.root / "report.html"

    @property
    def ending(self) -> Path:
        """It is there when nobody publishes any more: Spark takes what is left, and accounts for it."""
        return self.root / "ending"

    @property
    def said(self) -> Path:
        """The steps that Spark takes then, a line each."""
        return self.root / "steps"

    @property
    def account(self) -> Path:
        """What it found, JSON."""
        return self.root / "account.json"
