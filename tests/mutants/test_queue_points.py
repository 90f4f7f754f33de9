"""Mutants below the queue: tests that stop or fork a process at each point notice.

A library in front of libc (`LD_PRELOAD`) changes one system call of the built core, so only the library is
compiled. The tests run in a pytest of their own, at one point each, because all points would take long.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit import ROOT
from tests.kit.native import built_library

VARIABLE = "HOLDFAST_BROKEN_CALL"

SOURCE = """
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static bool broken(const char* how) {
    const char* told = getenv("HOLDFAST_BROKEN_CALL");
    return told != nullptr && strcmp(told, how) == 0;
}

extern "C" int fcntl64(int fd, int command, ...) {
    va_list given;
    va_start(given, command);
    void* argument = va_arg(given, void*);
    va_end(given);
    if (command == F_OFD_SETLK && broken("locks-exclusive")) {
        struct flock* lock = static_cast<struct flock*>(argument);
        if (lock->l_type == F_RDLCK) lock->l_type = F_WRLCK;
    }
    using Real = int (*)(int, int, ...);
    static const Real real = reinterpret_cast<Real>(dlsym(RTLD_NEXT, "fcntl64"));
    return real(fd, command, argument);
}

extern "C" int fcntl(int fd, int command, ...) {
    va_list given;
    va_start(given, command);
    void* argument = va_arg(given, void*);
    va_end(given);
    return fcntl64(fd, command, argument);
}

extern "C" void* mmap(void* at, size_t size, int protection, int flags, int fd, off_t offset) noexcept {
    if (broken("child-keeps-the-mapping") && flags == (MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE) && fd >= 0) {
        flags = MAP_SHARED | MAP_FIXED;
    }
    using Real = void* (*)(void*, size_t, int, int, int, off_t);
    static const Real real = reinterpret_cast<Real>(dlsym(RTLD_NEXT, "mmap"));
    return real(at, size, protection, flags, fd, offset);
}

extern "C" void* mmap64(void* at, size_t size, int protection, int flags, int fd, off_t offset) noexcept {
    return mmap(at, size, protection, flags, fd, offset);
}
"""

STOPPED = "tests/process/queue/test_stopped.py"
FORKED = "tests/process/queue/test_forked.py"
MUTANTS = {
    "locks-exclusive": (
        f"{STOPPED}::test_a_stopped_recoverer_stops_nobody[recover_block-False]",
        "each once",
    ),
    "child-keeps-the-mapping": (f"{FORKED}::test_a_child_of_the_middle[put-put_begin]", "2 more items"),
}
"""The recoverers' shared lock is exclusive; the child of a fork writes into the parent's queue."""


@pytest.mark.parametrize("name", MUTANTS)
def test_it_is_noticed(name: str, tmp_path: Path) -> None:
    """Its own test fails, and the other's passes, so the library alone breaks nothing."""
    command = [sys.executable, "-m", "pytest", "-n0", "-q", "-p", "no:cacheprovider", "--tb=short"]
    done = subprocess.run(
        [*command, f"--basetemp={tmp_path / 'inside'}", *(test for test, _ in MUTANTS.values())],
        cwd=ROOT,
        env=os.environ | {"LD_PRELOAD": str(built_library("broken_calls", SOURCE)), VARIABLE: name},
        capture_output=True,
        text=True,
    )
    test, words = MUTANTS[name]
    assert done.returncode == 1, done.stdout
    assert "1 failed, 1 passed" in done.stdout
    assert f"FAILED {test}" in done.stdout
    assert words in done.stdout
