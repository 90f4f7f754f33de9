"""Open a broker by `with` or `async with`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

from holdfast.broker.api.blocking import BlockingBroker, Runner
from holdfast.broker.options import BrokerOptions

if TYPE_CHECKING:
    from holdfast.broker.broker import Broker

Start: TypeAlias = "Callable[[Path, BrokerOptions], Coroutine[Any, Any, Broker]]"


class Opening:
    """The result of `Broker.open`: `async with` enters a `Broker`, `with` a `BlockingBroker`."""

    def __init__(self, start: Start, path: str | Path, options: BrokerOptions) -> None:
        self._start = start
        self._path = Path(path)
        self._options = options
        self._broker: Broker | None = None
        self._runner: Runner | None = None

    async def __aenter__(self) -> Broker:
        self._broker = await self._start(self._path, self._options)
        return self._broker

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._broker is not None
        await self._broker.close()

    def __enter__(self) -> BlockingBroker:
        self._runner = Runner()
        try:
            self._broker = self._runner(self._start(self._path, self._options))
        except BaseException:
            self._runner.stop()
            raise
        return BlockingBroker(self._runner, self._broker)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._broker is not None
        assert self._runner is not None
        self._runner.finish(self._broker.close())
