"""Ask the owners of subscriptions, and answer members that ask.

Promises upward: each request ends. It is answered, or its answerer leaves the view, or its time is over.
After an answer, the state of this member has what the owner did. Needs from below: the one order, in which an
answer follows what it is about.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast import errors
from holdfast.broker.dispatch.types import Submit
from holdfast.broker.events import Answer, Event, OwnerAnswer, OwnerAnswered
from holdfast.errors import HoldfastError, Timeout
from holdfast.group import Member

WAIT_S = 10.0
"""Time for an answer. A request that takes longer fails, and may still be carried out."""


@dataclass(slots=True, eq=False)
class _Ask:
    future: asyncio.Future[Answer]
    timer: asyncio.TimerHandle
    answerer: Member | None = None
    """None: the request is not stable yet."""


class Asks:
    """The requests of one member that wait for their answers."""

    def __init__(self, member: Member, submit: Submit) -> None:
        self.member = member
        self._submit = submit
        self._waiting: dict[int, _Ask] = {}
        self._last = 0
        self._members: set[Member] | None = None
        """Of the last view that was heard of."""

    def ask(self, make: Callable[[int], Event], what: str) -> asyncio.Future[Answer]:
        """Submit a request with a number. The future has its answer.

        It fails with the owner's error, or with Timeout: then the request may have been carried out.
        """
        self._last += 1
        number, loop = self._last, asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        text = f"{what} was not answered in {WAIT_S:g} s; it may still happen: look, then ask again"
        timer = loop.call_later(WAIT_S, self._fail, number, Timeout(text))
        self._waiting[number] = _Ask(future, timer)
        future.add_done_callback(lambda done: self._forget(number))
        try:
            sent = self._submit(make(number))
        except HoldfastError as error:
            self._fail(number, error)
        else:
            sent.add_done_callback(lambda done: self._sent(number, done))
        return future

    def _sent(self, number: int, done: asyncio.Future[Any]) -> None:
        if done.cancelled():
            return
        error, ask = done.exception(), self._waiting.get(number)
        if isinstance(error, HoldfastError):
            self._fail(number, error)
        elif error is None and ask is not None:
            ask.answerer = done.result().answerer
            self._require_answerer(number, ask)  # a later view may have been settled in the same turn

    def answered(self, notice: OwnerAnswered) -> None:
        """Follow a stable answer to any member."""
        if notice.member == self.member:
            self._done(notice.ask, notice.answer)

    def answer(self, member: Member, number: int, answer: Answer) -> None:
        """Answer a request of any member, also of this one."""
        if member == self.member:
            self._done(number, answer)
            return
        try:
            sent = self._submit(OwnerAnswer(member, number, answer))
        except HoldfastError:  # the broker ends, or the answer is too large: the time of the request ends
            return
        sent.add_done_callback(lambda done: None if done.cancelled() else done.exception())

    def viewed(self, members: set[Member]) -> None:
        """Follow a view: those that left answer no more."""
        self._members = members
        for number, ask in [*self._waiting.items()]:
            self._require_answerer(number, ask)

    def _require_answerer(self, number: int, ask: _Ask) -> None:
        """Fail a request whose answerer has left."""
        gone = self._members is not None and ask.answerer not in self._members
        if gone and ask.answerer is not None:
            text = f"member {ask.answerer} left before it answered; look whether it was done, then ask again"
            self._fail(number, Timeout(text))

    def ended(self, reason: HoldfastError) -> None:
        """Fail all requests: the broker ends."""
        for number in [*self._waiting]:
            self._fail(number, reason)

    def _done(self, number: int, answer: Answer) -> None:
        ask = self._waiting.get(number)
        if ask is None or ask.future.done():
            return
        if answer.error:
            self._fail(number, error_of(answer))
        else:
            ask.future.set_result(answer)

    def _fail(self, number: int, error: HoldfastError) -> None:
        ask = self._waiting.get(number)
        if ask is not None and not ask.future.done():
            ask.future.set_exception(error)
            ask.future.exception()  # marks it as seen: asyncio does not warn if the caller does not wait

    def _forget(self, number: int) -> None:
        self._waiting.pop(number).timer.cancel()


def refusal(error: BaseException) -> Answer:
    """Return the answer that carries an error."""
    return Answer(type(error).__name__, str(error))


def error_of(answer: Answer) -> HoldfastError:
    """Return the error of an answer."""
    kind = getattr(errors, answer.error, None)
    known = isinstance(kind, type) and issubclass(kind, HoldfastError)
    made: HoldfastError = kind(answer.text) if known and kind is not None else HoldfastError(answer.text)
    return made
