"""The connection to libvirt: calls in threads, and a new connection when the old one broke.

Decided here: which errors mean that libvirt did not answer (``RuntimeUnavailableError``), told by
libvirt's error codes, and which are its answer (``LibvirtRefusedError``). A dead connection is
noticed by keep-alives and replaced by the next call, so a restarted libvirtd needs nothing else.
Calls run in four threads, so one that takes long holds up nobody.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import TypeVar

from attrs import define, field

from persys_agent.runtimes.port import RuntimeUnavailableError
from persys_agent.runtimes.vm.binding import INSTALL, Connection, LibvirtModule, load_libvirt
from persys_core.model.errors import PersysError

__all__ = ["LibvirtLink", "LibvirtRefusedError"]

_T = TypeVar("_T")
_THREADS = 4
_KEEP_ALIVE_SECONDS = 5
_KEEP_ALIVE_TRIES = 3
# Numbers of libvirt's stable interface (virErrorDomain, virErrorNumber).
_TRANSPORT_DOMAINS = frozenset({7, 13})  # VIR_FROM_RPC, VIR_FROM_REMOTE
_TRANSPORT_CODES = frozenset({5, 6, 39, 45, 94})
"""NO_CONNECT, INVALID_CONN, RPC, AUTH_FAILED, AUTH_UNAVAILABLE."""
_SYSTEM_CODES = frozenset({1, 38})
"""INTERNAL_ERROR and SYSTEM_ERROR: the transport's where the transport raised them."""


class LibvirtRefusedError(PersysError):
    """libvirt answered that it cannot; ``code`` is its error number."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@define(eq=False)
class LibvirtLink:
    """``call_timeout`` bounds how long a caller waits for one call; ``load`` gives the module, or
    raises ``ImportError``."""

    uri: str
    call_timeout: timedelta
    load: Callable[[], LibvirtModule] = load_libvirt
    _pool: ThreadPoolExecutor = field(init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)
    _connection: Connection | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="libvirt")

    async def call(self, work: Callable[[Connection], _T]) -> _T:
        """Run ``work`` in a thread. Raises ``RuntimeUnavailableError``, ``LibvirtRefusedError``.

        A call that is given up runs to its end in its thread; nobody waits for it then.
        """
        seconds = self.call_timeout.total_seconds()
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(seconds):
                return await loop.run_in_executor(self._pool, self._run, work)
        except TimeoutError:
            text = f"libvirt at {self.uri} did not answer within {seconds:g} s"
            raise RuntimeUnavailableError(text) from None

    async def aclose(self) -> None:
        """Let the connection go."""
        connection, self._connection = self._connection, None
        self._pool.shutdown(wait=False, cancel_futures=True)
        if connection is not None:
            await asyncio.to_thread(_close, connection)

    def _run(self, work: Callable[[Connection], _T]) -> _T:
        try:
            module = self.load()
        except ImportError as error:
            raise RuntimeUnavailableError(f"no libvirt module: {INSTALL}") from error
        try:
            connection = self._open(module)
            return work(connection)
        except module.libvirtError as error:
            code, domain = error.get_error_code() or 0, error.get_error_domain() or 0
            if _is_transport(code, domain):
                raise RuntimeUnavailableError(f"libvirt at {self.uri}: {error}") from error
            raise LibvirtRefusedError(code, str(error)) from error

    def _open(self, module: LibvirtModule) -> Connection:
        with self._lock:
            if self._connection is not None and self._connection.isAlive() == 1:
                return self._connection
            if self._connection is not None:
                _close(self._connection)
                self._connection = None
            connection = module.open(self.uri)
            with suppress(module.libvirtError):  # a driver without a wire has no keep-alive
                connection.setKeepAlive(_KEEP_ALIVE_SECONDS, _KEEP_ALIVE_TRIES)
            self._connection = connection
            return connection


def _is_transport(code: int, domain: int) -> bool:
    return code in _TRANSPORT_CODES or (domain in _TRANSPORT_DOMAINS and code in _SYSTEM_CODES)


def _close(connection: Connection) -> None:
    with suppress(Exception):  # libvirtError of a connection that is dead already
        connection.close()
