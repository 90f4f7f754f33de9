"""Locks of objects that a child of fork() may still close.

A thread that held a lock stays in the parent. Its lock would never be free in the child.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class LockOwner(Protocol):
    """An object with locks of its own."""

    def _renew_locks(self) -> None:
        """Replace the locks by free ones."""


_owners: weakref.WeakSet[LockOwner] = weakref.WeakSet()


def renew_locks_in_children(owner: LockOwner) -> None:
    """Give the object free locks in every child of fork(). It is not kept alive."""
    _owners.add(owner)


def _after_fork() -> None:
    for owner in [*_owners]:
        owner._renew_locks()


os.register_at_fork(after_in_child=_after_fork)
