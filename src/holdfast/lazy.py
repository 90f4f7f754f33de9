"""Faces of packages whose modules are loaded on first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module


def loader(package: str, modules: Mapping[str, tuple[str, ...]]) -> Callable[[str], object]:
    """Return a `__getattr__` for a package: it loads the module of a name.

    Args:
        package: its `__name__`.
        modules: the names that each of its modules brings to the face.

    Example:
        >>> __getattr__ = loader("holdfast.system", {"clock": ("SystemClock",)})
        >>> __getattr__("SystemClock").__name__
        'SystemClock'
    """
    homes = {name: module for module, names in modules.items() for name in names}

    def load(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    return load
