"""Generate the code beside the .proto files: `python -m tests.kit.server.generate_proto`."""

from __future__ import annotations

import importlib.resources
import subprocess
import sys
from pathlib import Path

from tests.kit import ROOT

SOURCE = ROOT / "src"
FOLDER = Path("holdfast/protocol")
FILES = sorted(path.relative_to(SOURCE) for path in (SOURCE / FOLDER).glob("*.proto"))


def generate(target: Path) -> list[Path]:
    """Compile all of them below `target`; return the generated files, relative to it."""
    known = str(importlib.resources.files("grpc_tools") / "_proto")
    compiler = [sys.executable, "-m", "grpc_tools.protoc", f"-I{SOURCE}", f"-I{known}"]
    outputs = [f"--python_out={target}", f"--pyi_out={target}"]
    subprocess.run([*compiler, *outputs, *map(str, FILES)], check=True, cwd=SOURCE)
    return [path.with_name(f"{path.stem}_pb2{suffix}") for path in FILES for suffix in (".py", ".pyi")]


if __name__ == "__main__":
    for made in generate(SOURCE):
        print(SOURCE / made)
