"""The part of the ``libvirt`` module that we use, with types; the module is optional.

libvirt-python is built against the host's libvirt and has no types. It comes with the extra
``persys-agent[vm]`` and is imported when a runtime first needs it, so an agent without it runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Protocol, cast

__all__ = ["INSTALL", "Connection", "Domain", "LibvirtError", "LibvirtModule", "load_libvirt"]

INSTALL = (
    "install libvirt's client (Debian: libvirt-daemon-system libvirt-dev pkg-config, then"
    " pip install 'persys-agent[vm]')"
)

InterfaceAddresses = Mapping[str, Mapping[str, object]]


class Domain(Protocol):
    """A virtual machine as libvirt knows it."""

    def name(self) -> str: ...
    def create(self) -> int: ...
    def resume(self) -> int: ...
    def shutdown(self) -> int: ...
    def destroy(self) -> int: ...
    def state(self) -> Sequence[int]: ...
    def metadata(self, type: int, uri: str | None, flags: int = 0) -> str: ...
    def undefineFlags(self, flags: int) -> int: ...  # noqa: N802, RUF100  # libvirt's name
    def XMLDesc(self, flags: int = 0) -> str: ...  # noqa: N802, RUF100  # libvirt's name
    def interfaceAddresses(self, source: int) -> InterfaceAddresses: ...  # noqa: N802, RUF100


class Connection(Protocol):
    """An open connection."""

    def isAlive(self) -> int: ...  # noqa: N802, RUF100  # libvirt's names from here on
    def close(self) -> int: ...
    def setKeepAlive(self, interval: int, count: int) -> int: ...  # noqa: N802, RUF100
    def getLibVersion(self) -> int: ...  # noqa: N802, RUF100
    def getVersion(self) -> int: ...  # noqa: N802, RUF100
    def getCapabilities(self) -> str: ...  # noqa: N802, RUF100
    def lookupByName(self, name: str) -> Domain: ...  # noqa: N802, RUF100
    def listAllDomains(self, flags: int = 0) -> Sequence[Domain]: ...  # noqa: N802, RUF100
    def defineXML(self, xml: str) -> Domain: ...  # noqa: N802, RUF100
    def getAllDomainStats(  # noqa: N802, RUF100
        self, stats: int, flags: int = 0
    ) -> Sequence[tuple[Domain, Mapping[str, object]]]: ...


class LibvirtError(Exception):
    """The shape of ``libvirt.libvirtError``; the real class is that of the module."""

    def get_error_code(self) -> int | None: ...
    def get_error_domain(self) -> int | None: ...


class LibvirtModule(Protocol):
    """The module itself."""

    libvirtError: type[LibvirtError]  # noqa: N815, RUF100  # libvirt's name

    def open(self, uri: str) -> Connection: ...


class _Events(Protocol):
    def virEventRegisterDefaultImpl(self) -> int: ...  # noqa: N802, RUF100
    def virEventRunDefaultImpl(self) -> int: ...  # noqa: N802, RUF100
    def registerErrorHandler(  # noqa: N802, RUF100
        self, handler: Callable[[object, object], None], context: object
    ) -> int: ...


@cache
def load_libvirt() -> LibvirtModule:
    """The module, its events served by a thread. Raises ``ImportError`` where it is missing."""
    module = import_module("libvirt")
    events = cast("_Events", module)
    events.registerErrorHandler(_ignore, None)  # else it writes every error to stderr
    events.virEventRegisterDefaultImpl()
    threading.Thread(target=_serve, args=(events,), name="libvirt-events", daemon=True).start()
    return cast("LibvirtModule", module)


def _serve(events: _Events) -> None:
    while True:
        events.virEventRunDefaultImpl()


def _ignore(_context: object, _error: object) -> None:
    """Every error is raised as well."""
