"""A service with one event and one method, for tests that end its processes."""

from __future__ import annotations

from typing import Final

from holdfast import Event, Method, Service

SAMPLES: Final = 12


class Rig(Service):
    """The service of the matrix; children import it, too."""

    frame = Event(size=32, samples=SAMPLES)
    reset = Method(8, 8)
