"""`holdfast.Loop`: full buffers go out, and empty ones come back."""

from __future__ import annotations

from holdfast.memory.channel import Channel


class Loop(Channel):
    """A channel whose buffers come back to the producer through a second ring.

    Both rings hand over the same buffers. An item that the consumer releases is pushed back. The producer's
    next loan takes it from there. Its cost does not depend on the number of buffers: a process with a
    deadline can afford a large pool. A producer that waits (`fileno()`, `arm()`) is notified.

    Either process may die at any instruction. A buffer that was on its way back arrives. Those that a dead
    consumer held come back with the next loan that finds no other.

    A loop has one producer and one priority. All else is as in a `Channel`.

    Example:
        >>> from holdfast import Loop
        >>> with Loop.create("regions", slots=2, slot_size=64) as loop:
        ...     producer, consumer = loop.producer(), loop.consumer()
        ...     with producer.loan(4) as buffer:
        ...         buffer[:] = b"full"
        ...     with consumer.pop() as item:
        ...         print(bytes(item.data), loop.stats().held, loop.stats().returning)
        ...     print(loop.stats().held, loop.stats().returning)
        b'full' 1 0
        0 1
        >>> Loop.unlink("regions")
    """

    _loop = True
