"""Say whether a topic is open, terminated, or closed to producers by a backlog quota."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.broker import TopicStats


def state_words(found: TopicStats) -> str:
    """Return the state of a topic in few words, for a line or a column."""
    state = "terminated" if found.terminated else "producers stopped" if found.exceeded else "open"
    return state + (", unreplicated" if found.unreplicated else "")


def quota_lines(found: TopicStats) -> list[str]:
    """Return a line with the reason why producers are stopped, if they are."""
    if not found.exceeded:
        return []
    which = " and ".join(f"by {name} ({action})" for name, action in found.exceeded.items())
    return [f"  producers     stopped: the backlog exceeds its quota {which}"]
