"""What the services of a Compose file have of each other by ``extends``.

Decided here: how two services become one, as Compose does it (mappings key by key at every depth,
lists of both), and how large all of them may become. A short file can stand for no end of entries,
by aliases and by what is inherited over and over; all that look at services later rely on there
being few.
"""

from __future__ import annotations

from collections.abc import Mapping, Sized
from typing import TypeGuard

from persys_agent.runtimes.docker.documents import Document
from persys_agent.runtimes.port import FailureCode, RuntimeFailedError

__all__ = ["MOST_ENTRIES", "MOST_SERVICES", "with_inherited"]

MOST_SERVICES = 1000
MOST_ENTRIES = 10_000
"""What lists and mappings of all services have together, with what is inherited."""
_MOST_COPIED = 10 * MOST_ENTRIES
_MOST_DEPTH = 20
_MANY = (
    f"its services have more than {MOST_ENTRIES} entries together, with what they inherit and what"
    " aliases repeat"
)


def with_inherited(services: Mapping[str, Document]) -> dict[str, Document]:
    """The services with what each has from others of the file, in their order. Raises
    ``RuntimeFailedError`` where that is too much."""
    if len(services) > MOST_SERVICES:
        raise _too_large(f"it has {len(services)} services, and may have {MOST_SERVICES}")
    known: dict[str, Document] = {}
    joining = _Joining()
    for name in services:
        for each in reversed(_line(name, services, known)):
            base = known.get(_base(services[each]), {})
            known[each] = joining.service(base, services[each])
    return {name: known[name] for name in services}


def _line(name: str, services: Mapping[str, Document], known: Mapping[str, Document]) -> list[str]:
    """The service and its ancestors, as far as they are not known yet; a circle ends."""
    line: dict[str, None] = {}
    while name in services and name not in known and name not in line:
        line[name] = None
        name = _base(services[name])
    return list(line)


def _base(service: Document) -> str:
    extends = service.get("extends")
    base = extends.get("service") if isinstance(extends, Mapping) else extends
    return base if isinstance(base, str) else ""


class _Joining:
    """Counts what is made, so that it ends before it is too much."""

    def __init__(self) -> None:
        self._entries = self._copied = 0

    def service(self, inherited: Document, own: Document) -> Document:
        """A service with what it inherits."""
        found = self._mapping(inherited, own, 0) if inherited else own
        self._entries += sum(len(each) for each in found.values() if _has_entries(each))
        if self._entries > MOST_ENTRIES:
            raise _too_large(_MANY)
        return found

    def _mapping(
        self, inherited: Mapping[str, object], own: Mapping[str, object], depth: int
    ) -> dict[str, object]:
        if depth > _MOST_DEPTH:
            raise _too_large("it is nested too deeply")
        self._copy(len(inherited) + len(own))
        found = dict(inherited)
        for key, value in own.items():
            found[key] = self._value(found[key], value, depth + 1) if key in found else value
        return found

    def _value(self, inherited: object, own: object, depth: int) -> object:
        """Of single values that of the service itself, unless it is none."""
        if isinstance(inherited, list) and isinstance(own, list):
            self._copy(len(inherited) + len(own))
            return [*inherited, *own]
        if isinstance(inherited, Mapping) and isinstance(own, Mapping):
            return self._mapping(inherited, own, depth)
        return inherited if own is None else own

    def _copy(self, entries: int) -> None:
        self._copied += entries
        if self._copied > _MOST_COPIED:
            raise _too_large(_MANY)


def _has_entries(value: object) -> TypeGuard[Sized]:
    return isinstance(value, list | Mapping)


def _too_large(problem: str) -> RuntimeFailedError:
    return RuntimeFailedError(
        FailureCode.INVALID_SPEC,
        f"the Compose file is too large: {problem}; make several applications of it",
    )
