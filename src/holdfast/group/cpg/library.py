"""Call libcpg, the library of Corosync's closed process groups, by ctypes.

Callbacks only note what came; `take` returns it afterwards. So no code of ours runs inside the library. Calls
that wait for the daemon (connect, join, leave) run in a thread. `send` and `take` never wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import threading
from collections import deque
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from holdfast.errors import NotFound, PeerDied
from holdfast.group.cpg.carrier import Carrier, CarrierLost, Item, Listed, Message, Process

T = TypeVar("T")

SONAME = "libcpg.so.4"
OK, LIBRARY, TRY_AGAIN, EXIST = 1, 2, 6, 14
ERRORS = {
    LIBRARY: "the connection to Corosync broke (CS_ERR_LIBRARY)",
    5: "Corosync did not answer in time (CS_ERR_TIMEOUT)",
    9: "the handle is closed (CS_ERR_BAD_HANDLE)",
    11: "Corosync refused this user (CS_ERR_ACCESS); allow its uid in /etc/corosync/uidgid.d",
    12: "the group does not exist (CS_ERR_NOT_EXIST)",
}
AGREED = 2
DISPATCH_ONE_NONBLOCKING = 4
MODEL_V1 = 1
NAME_MAX = 128
JOIN_TRIES = 200
RETRY_S = 0.05


class _Name(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint32), ("value", ctypes.c_char * NAME_MAX))


class _Address(ctypes.Structure):
    _fields_ = (("nodeid", ctypes.c_uint32), ("pid", ctypes.c_uint32), ("reason", ctypes.c_uint32))


class _Iovec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


_Deliver = ctypes.CFUNCTYPE(
    None,
    ctypes.c_uint64,
    ctypes.c_void_p,
    ctypes.c_uint32,
    ctypes.c_uint32,
    ctypes.c_void_p,
    ctypes.c_size_t,
)
_Change = ctypes.CFUNCTYPE(
    None,
    ctypes.c_uint64,
    ctypes.c_void_p,
    ctypes.POINTER(_Address),
    ctypes.c_size_t,
    ctypes.POINTER(_Address),
    ctypes.c_size_t,
    ctypes.POINTER(_Address),
    ctypes.c_size_t,
)


class _Model(ctypes.Structure):
    _fields_ = (
        ("model", ctypes.c_int),
        ("deliver", _Deliver),
        ("change", _Change),
        ("totem_change", ctypes.c_void_p),
        ("flags", ctypes.c_uint),
    )


@cache
def library() -> ctypes.CDLL:
    """Load libcpg."""
    try:
        found = ctypes.CDLL(SONAME)
    except OSError as error:
        raise NotFound(
            f"{SONAME} was not found; install Corosync (Debian, Ubuntu: apt-get install corosync libcpg4)"
        ) from error
    handle, name = ctypes.c_uint64, ctypes.POINTER(_Name)
    calls: dict[str, list[Any]] = {
        "cpg_model_initialize": [
            ctypes.POINTER(handle),
            ctypes.c_int,
            ctypes.POINTER(_Model),
            ctypes.c_void_p,
        ],
        "cpg_finalize": [handle],
        "cpg_fd_get": [handle, ctypes.POINTER(ctypes.c_int)],
        "cpg_dispatch": [handle, ctypes.c_int],
        "cpg_join": [handle, name],
        "cpg_leave": [handle, name],
        "cpg_local_get": [handle, ctypes.POINTER(ctypes.c_uint)],
        "cpg_mcast_joined": [handle, ctypes.c_int, ctypes.POINTER(_Iovec), ctypes.c_uint],
    }
    for call, arguments in calls.items():
        function = getattr(found, call)
        function.argtypes = arguments
        function.restype = ctypes.c_int
    return found


def words_of(code: int) -> str:
    """Return an error of the library in words."""
    return ERRORS.get(code, f"Corosync's error {code}")


def _refusal(code: int) -> str:
    """Say why there is no connection to the daemon, and what to do."""
    if code in (LIBRARY, TRY_AGAIN):
        return "Corosync does not run on this node, or is just starting; see systemctl status corosync"
    return f"the Corosync of this node does not answer: {words_of(code)}; see systemctl status corosync"


class Cpg(Carrier):
    """A process's connection to the Corosync of its node, in the group `name`.

    Example:
        >>> carrier = Cpg("holdfast")                       # doctest: +SKIP
        >>> await carrier.join(lambda: None)                # doctest: +SKIP
        Process(node=1, pid=4711)
    """

    def __init__(self, name: str) -> None:
        data = name.encode()
        if not 0 < len(data) <= NAME_MAX:
            raise ValueError(f"a group's name has 1 to {NAME_MAX} bytes; {name!r} has {len(data)}")
        self._name = _Name(len(data), data)
        self._handle: ctypes.c_uint64 | None = None
        self._descriptor = -1
        self._came: deque[Item] = deque()
        # The library calls these as long as the handle lives, so they must live as long.
        self._model = _Model(MODEL_V1, _Deliver(self._deliver), _Change(self._change), None, 0)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def join(self, arrived: Callable[[], None]) -> Process:
        self._loop = asyncio.get_running_loop()
        node = await self._apart(self._connect)
        for _ in range(JOIN_TRIES):
            code = await self._apart(lambda: library().cpg_join(self._handle, ctypes.byref(self._name)))
            if code not in (TRY_AGAIN, EXIST):  # a member of this process that left may still be listed
                break
            await asyncio.sleep(RETRY_S)
        if code != OK:
            self.close()
            raise PeerDied(f"this process cannot join the group: {words_of(code)}")
        self._loop.add_reader(self._descriptor, arrived)
        return Process(node, os.getpid())

    def take(self) -> Item | None:
        if not self._came:
            self._dispatch()
        return self._came.popleft() if self._came else None

    def send(self, data: bytes) -> bool:
        if self._handle is None:
            raise CarrierLost("the connection to Corosync is closed")
        pointer = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p)
        code = library().cpg_mcast_joined(self._handle, AGREED, ctypes.byref(_Iovec(pointer, len(data))), 1)
        if code not in (OK, TRY_AGAIN):
            raise CarrierLost(words_of(code))
        return bool(code == OK)

    async def leave(self) -> None:
        self._unwatch()
        if self._handle is not None:
            await self._apart(lambda: library().cpg_leave(self._handle, ctypes.byref(self._name)))
        self.close()

    def close(self) -> None:
        self._unwatch()
        handle, self._handle = self._handle, None
        if handle is not None:
            # It waits for the daemon, which may be stopped; the thread keeps this object alive meanwhile.
            threading.Thread(target=self._finalize, args=(handle,), daemon=True).start()

    def _finalize(self, handle: ctypes.c_uint64) -> None:
        library().cpg_finalize(handle)

    def _unwatch(self) -> None:
        if self._descriptor >= 0 and self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._descriptor)
        self._descriptor = -1

    def _connect(self) -> int:
        """Connect to the daemon, and return the number of its node."""
        handle = ctypes.c_uint64()
        code = library().cpg_model_initialize(ctypes.byref(handle), MODEL_V1, ctypes.byref(self._model), None)
        if code != OK:
            raise PeerDied(_refusal(code))
        self._handle = handle
        descriptor, node = ctypes.c_int(), ctypes.c_uint()
        for code in (
            library().cpg_fd_get(handle, ctypes.byref(descriptor)),
            library().cpg_local_get(handle, ctypes.byref(node)),
        ):
            if code != OK:
                raise PeerDied(f"the Corosync of this node does not answer: {words_of(code)}")
        self._descriptor = descriptor.value
        return node.value

    async def _apart(self, call: Callable[[], T]) -> T:
        """Run a call that waits for the daemon in a thread of its own."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def tell(result: T | None, error: BaseException | None) -> None:
            if done.cancelled():
                return
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(result)  # type: ignore[arg-type]

        def work() -> None:
            try:
                outcome: tuple[T | None, BaseException | None] = (self._place(call), None)
            except BaseException as error:
                outcome = (None, error)
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(tell, *outcome)

        threading.Thread(target=work, name="cpg", daemon=True).start()
        return await done

    def _place(self, call: Callable[[], T]) -> T:
        """Call in the place of the daemon; a test overrides it to enter a namespace."""
        return call()

    def _dispatch(self) -> None:
        if self._handle is None:
            raise CarrierLost("the connection to Corosync is closed")
        code = library().cpg_dispatch(self._handle, DISPATCH_ONE_NONBLOCKING)
        if code not in (OK, TRY_AGAIN):
            raise CarrierLost(words_of(code))

    def _deliver(self, _: int, name: int, node: int, pid: int, data: int, size: int) -> None:
        self._came.append(Message(Process(node, pid), ctypes.string_at(data, size) if size else b""))

    def _change(
        self, _: int, name: int, members: Any, count: int, left: Any, gone: int, joined: Any, new: int
    ) -> None:
        listed = (members[number] for number in range(count))
        self._came.append(Listed(frozenset(Process(each.nodeid, each.pid) for each in listed)))
