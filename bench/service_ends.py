"""The transports of the service's benchmark: holdfast and iceoryx2, each in place and copied."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass

from bench.channel_ends import IceoryxChannel, iceoryx_copied
from bench.links import Kind, Receiver, Sender, Setting
from bench.ours import SPIN_S
from bench.trips import COPIED, IN_PLACE, TripEnd
from holdfast import Event, Method, NotFound, Service

SLOTS = 4  # of an iceoryx2 subscriber; an event has as many samples, and some for its two sides
FIND_S = 30.0


def unused_name(what: str) -> str:
    """Return the name of an instance that no other run uses."""
    return f"{what}-{os.getpid()}-{os.urandom(4).hex()}"


def event_service(size: int, samples: int, subscribers: int = 1) -> type[Service]:
    """Return a service with one event, `data`."""
    event = Event(size=size, samples=samples, max_subscribers=subscribers)
    return type("Bench", (Service,), {"data": event})


def method_service(size: int) -> type[Service]:
    """Return a service with one method, `echo`."""
    return type("BenchCalls", (Service,), {"echo": Method(size, size)})


@dataclass(frozen=True)
class HoldfastService:
    name: str
    size: int
    copied: bool

    @staticmethod
    def make(setting: Setting, copied: bool) -> HoldfastService:
        return HoldfastService(unused_name("trips"), setting.size, copied)

    @property
    def service(self) -> type[Service]:
        return event_service(self.size, SLOTS + 2)

    def sender(self) -> Sender:
        return CopyingProvider(self) if self.copied else Provider(self)

    def receiver(self) -> Receiver:
        return CopyingSubscriber(self) if self.copied else Subscriber(self)

    def destroy(self) -> None:
        with contextlib.suppress(NotFound):  # else the provider ended before its subscriber
            self.service.unlink(self.name)


class Provider(TripEnd):
    def __init__(self, transport: HoldfastService) -> None:
        self.skeleton = transport.service.offer(transport.name)
        self.event = self.skeleton.data
        self.size = transport.size

    def send(self, data: bytes) -> None:
        self.event.loan(self.size).publish()

    def close(self) -> None:
        self.skeleton.close()


class CopyingProvider(Provider):
    def send(self, data: bytes) -> None:
        self.event.send(data)


class Subscriber(TripEnd):
    def __init__(self, transport: HoldfastService) -> None:
        self.proxy = transport.service.find(transport.name, FIND_S)
        self.proxy._core.spin = SPIN_S
        self.subscription = self.proxy.data.subscribe()

    def spin(self) -> bytes:
        with self.subscription.take():
            return b""

    def close(self) -> None:
        self.proxy.close()


class CopyingSubscriber(Subscriber):
    def spin(self) -> bytes:
        with self.subscription.take() as sample:
            return bytes(sample.data)


KINDS: tuple[Kind, ...] = (
    Kind("holdfast", lambda setting: HoldfastService.make(setting, copied=False), readings=(IN_PLACE,)),
    Kind("holdfast, copied", lambda setting: HoldfastService.make(setting, copied=True), readings=(COPIED,)),
    Kind("iceoryx2", IceoryxChannel.make, module="iceoryx2", readings=(IN_PLACE,)),
    Kind("iceoryx2, copied", iceoryx_copied, module="iceoryx2", readings=(COPIED,)),
)
