"""The files of a checkout, for rules and tests that read them."""

from __future__ import annotations

import ast
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath


@dataclass(frozen=True)
class Tree:
    """The files of a checkout, by their path from its root, without ignored ones."""

    root: Path

    @cache  # noqa: B019  (a Tree lives as long as the test run)
    def paths(self) -> list[str]:
        if (self.root / ".git").exists() and shutil.which("git"):
            listed = subprocess.run(
                ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
                cwd=self.root,
                check=False,
                capture_output=True,
                text=True,
            )
            if listed.returncode == 0:
                return sorted(path for path in listed.stdout.splitlines() if (self.root / path).is_file())
        found = (path.relative_to(self.root) for path in self.root.rglob("*") if path.is_file())
        ignored = {".venv", "build", "site", "dist", "__pycache__"}
        return sorted(
            path.as_posix()
            for path in found
            if not ignored & set(path.parts) and not any("_cache" in part for part in path.parts)
        )

    def matching(self, *patterns: str) -> list[str]:
        return [path for path in self.paths() if any(matches(path, pattern) for pattern in patterns)]

    @cache  # noqa: B019
    def text(self, path: str) -> str:
        return (self.root / path).read_text(encoding="utf-8", errors="replace")

    @cache  # noqa: B019
    def parsed(self, path: str) -> ast.Module:
        return ast.parse(self.text(path))

    def has(self, path: str) -> bool:
        return (self.root / path).exists()


def matches(path: str, pattern: str) -> bool:
    """Match a path: "native/**.hpp" below a folder, "native/holdfast/*.hpp" directly in it."""
    if "**" in pattern:
        folder, suffix = pattern.split("**")
        return path.startswith(folder) and path.endswith(suffix)
    return PurePosixPath(path).match(pattern) and path.count("/") == pattern.count("/")
