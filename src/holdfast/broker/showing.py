"""Publish topics to processes that read the files of a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.broker.broker import Broker
    from holdfast.broker.topic import Topic


def show(broker: Broker, topic: Topic, state: str) -> None:
    """Publish what may be read of a topic.

    If that fails (a full disk, no descriptors), the broker continues, and housekeeping retries.
    """
    if broker.publications is None or not topic.is_whole:
        return
    of = topic.state
    views = () if of.compaction is None else of.compaction.kept
    told = (of.id, of.name, of.incarnation, of.ledgers, topic.visible, state, of.schemas, views)
    try:
        broker.publications.show(*told)
        broker.unshown.pop(of.id, None)
    except (OSError, HoldfastError) as error:
        broker.unshown[of.id] = str(error)
