"""The transports of the channel's benchmark: holdfast and iceoryx2, each in place and copied.

They make round trips alone. In place, a buffer changes hands and no process touches its bytes. Copied, the
sender copies a payload into the buffer, and the receiver copies it out as bytes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from bench.links import Kind, Receiver, Sender, Setting
from bench.ours import SPIN_S
from bench.peers import Iceoryx2, IceoryxReceiver, IceoryxSender
from bench.trips import COPIED, IN_PLACE, TripEnd
from holdfast import Channel

SLOTS = 4


@dataclass(frozen=True)
class HoldfastChannel:
    name: str
    copied: bool

    @staticmethod
    def make(setting: Setting, copied: bool) -> HoldfastChannel:
        name = f"bench-{os.getpid()}-{os.urandom(4).hex()}"
        Channel.create(name, slots=SLOTS, slot_size=setting.size).close()
        return HoldfastChannel(name, copied)

    def sender(self) -> Sender:
        return CopyingProducer(self.name) if self.copied else Producer(self.name)

    def receiver(self) -> Receiver:
        return CopyingConsumer(self.name) if self.copied else Consumer(self.name)

    def destroy(self) -> None:
        Channel.unlink(self.name)


class Producer(TripEnd):
    def __init__(self, name: str) -> None:
        self.channel = Channel.open(name)
        self.producer = self.channel.producer()

    def send(self, data: bytes) -> None:
        producer = self.producer
        producer.push(producer.loan())

    def close(self) -> None:
        self.channel.close()


class CopyingProducer(Producer):
    def send(self, data: bytes) -> None:
        self.producer.push(data)


class Consumer(TripEnd):
    def __init__(self, name: str) -> None:
        self.channel = Channel.open(name)
        self.consumer = self.channel.consumer()
        self.consumer.spin = SPIN_S

    def spin(self) -> bytes:
        with self.consumer.pop():
            return b""

    def close(self) -> None:
        self.channel.close()


class CopyingConsumer(Consumer):
    def spin(self) -> bytes:
        with self.consumer.pop() as item:
            return bytes(item.data)


@dataclass(frozen=True)
class IceoryxChannel(Iceoryx2):
    """iceoryx2 with as many samples as the channel has slots, and nothing copied."""

    @staticmethod
    def make(setting: Setting) -> IceoryxChannel:
        made = Iceoryx2.make(setting)
        return IceoryxChannel(made.name, made.size, SLOTS)

    def sender(self) -> Sender:
        return InPlaceSender(self)

    def receiver(self) -> Receiver:
        return InPlaceReceiver(self)


class InPlaceSender(IceoryxSender):
    def send(self, data: bytes) -> None:
        self.publisher.loan_slice_uninit(self.size).assume_init().send()


class InPlaceReceiver(IceoryxReceiver):
    def spin(self) -> bytes:
        receive = self.subscriber.receive
        while receive() is None:
            pass
        return b""


def iceoryx_copied(setting: Setting) -> Iceoryx2:
    made = Iceoryx2.make(setting)
    return Iceoryx2(made.name, made.size, SLOTS)


KINDS: tuple[Kind, ...] = (
    Kind("holdfast", lambda setting: HoldfastChannel.make(setting, copied=False), readings=(IN_PLACE,)),
    Kind("holdfast, copied", lambda setting: HoldfastChannel.make(setting, copied=True), readings=(COPIED,)),
    Kind("iceoryx2", IceoryxChannel.make, module="iceoryx2", readings=(IN_PLACE,)),
    Kind("iceoryx2, copied", iceoryx_copied, module="iceoryx2", readings=(COPIED,)),
)
