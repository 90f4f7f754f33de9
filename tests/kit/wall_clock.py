"""A wall clock for real processes that a test can set.

A small library in front of libc (`LD_PRELOAD`) replaces `clock_gettime`, `gettimeofday` and `time`. It adds
an offset from a file that it has mapped, so that a running process sees a jump at its next call. The
monotonic clocks are unchanged, so code that wrongly depends on the time of day is noticed.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from pathlib import Path
from typing import Self

from tests.kit.native import built_library

SECOND = 1_000_000_000
YEAR = 365 * 24 * 3600 * SECOND
VARIABLE = "HOLDFAST_WALL_CLOCK"

SOURCE = """
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

// The file: ns that are added, then the time at which the clock stands still, or 0.
static const volatile long long* setting() {
    static const volatile long long* mapped = nullptr;
    static bool looked = false;
    if (!looked) {
        looked = true;
        const char* path = getenv("HOLDFAST_WALL_CLOCK");
        const int fd = path == nullptr ? -1 : open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0) {
            void* got = mmap(nullptr, 16, PROT_READ, MAP_SHARED, fd, 0);
            if (got != MAP_FAILED) mapped = static_cast<const volatile long long*>(got);
            close(fd);
        }
    }
    return mapped;
}

static int really(clockid_t id, timespec* out) {
    using Real = int (*)(clockid_t, timespec*);
    static const Real real = reinterpret_cast<Real>(dlsym(RTLD_NEXT, "clock_gettime"));
    return real(id, out);
}

extern "C" int clock_gettime(clockid_t id, timespec* out) noexcept {
    const int status = really(id, out);
    const volatile long long* set = setting();
    if (status != 0 || set == nullptr || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE)) return status;
    long long now = out->tv_sec * 1000000000LL + out->tv_nsec + set[0];
    if (set[1] != 0) now = set[1];
    if (now < 0) now = 0;
    out->tv_sec = now / 1000000000LL;
    out->tv_nsec = now % 1000000000LL;
    return 0;
}

extern "C" int gettimeofday(timeval* out, void*) noexcept {
    timespec now;
    const int status = clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return status;
}

extern "C" time_t time(time_t* out) noexcept {
    timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out != nullptr) *out = now.tv_sec;
    return now.tv_sec;
}
"""


class WallClock:
    """The clock of the processes that are started with its `environment`."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "wall_clock"
        self._path.write_bytes(bytes(16))
        fd = os.open(self._path, os.O_RDWR)
        self._map = mmap.mmap(fd, 16)
        os.close(fd)
        self.environment = {
            "LD_PRELOAD": str(built_library("wall_clock", SOURCE)),
            VARIABLE: str(self._path),
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._map.close()

    def ahead(self, ns: int) -> None:
        """Run ahead by this time; below 0, behind."""
        self._map[:16] = struct.pack("qq", ns, 0)

    def stop(self) -> None:
        """Stand still."""
        self._map[:16] = struct.pack("qq", 0, time.time_ns())

    def right(self) -> None:
        self.ahead(0)
