"""Collects the wrong fields of a request, so that an answer can name all of them at once.

Decided here: how a path is written (``spec.container.ports[0].host_port``), how long texts may be
and which characters they may hold. Messages say what was wrong and what is accepted; they quote a
value only where it cannot be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TypeVar

from persys_core.model.errors import FieldError, InvalidInputError
from persys_core.model.ids import MAX_ID_LENGTH, is_valid_id
from persys_core.model.secrets import scrubbed

__all__ = ["Fields", "printable", "quoted"]

T = TypeVar("T")

_SHOWN_LENGTH = 64
_EXISTING_ID_LENGTH = 1024
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_CONTROL_IN_LINES = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


def quoted(value: str) -> str:
    """``value`` in quotes, without credentials, odd characters escaped, cut to a readable length.

    Credentials go before the cut: half of a URL does not look like one any more.
    """
    value = scrubbed(value, ())
    shown = value[:_SHOWN_LENGTH].encode("unicode_escape").decode().replace('"', '\\"')
    return f'"{shown}"' if len(value) <= _SHOWN_LENGTH else f'"{shown}…"'


def printable(value: str) -> str:
    """``value`` without half characters (JSON can spell them), which no UTF-8 text can hold."""
    return value.encode(errors="replace").decode()


class Fields:
    """The place in a request that is being read, and what was found wrong so far.

    Places inside it (``inside``, ``item``, ``entry``) share the findings. Every check returns a
    usable value, so that reading goes on after an error; ``finish`` raises if there was any.

    Size: one method per kind of field.
    """

    def __init__(self, path: str = "", found: list[FieldError] | None = None) -> None:
        self._path = path
        self._found: list[FieldError] = [] if found is None else found

    def inside(self, name: str) -> Fields:
        """The fields of the message in field ``name``."""
        return Fields(self._join(name), self._found)

    def item(self, name: str, index: int) -> Fields:
        """The fields of one message of the repeated field ``name``."""
        return Fields(f"{self._join(name)}[{index}]", self._found)

    def add(self, name: str, message: str) -> None:
        """Field ``name`` of this place is wrong; an empty name is the place itself."""
        self._found.append(FieldError(self._join(name), message))

    def extend(self, errors: Iterable[FieldError]) -> None:
        """Errors whose paths are complete already."""
        self._found.extend(errors)

    def finish(self) -> None:
        """Raise ``InvalidInputError`` with everything found; return where there is nothing."""
        if self._found:
            raise InvalidInputError(self._found)

    def new_id(self, name: str, value: str) -> str:
        """An id that something new may have."""
        if not value.strip():
            self.add(name, f"{name} is required")
        elif not is_valid_id(value):
            self.add(
                name,
                f"{quoted(value)} is not valid; accepted are 1 to {MAX_ID_LENGTH} characters of"
                " A-Z a-z 0-9 . _ - that begin with a letter or a digit",
            )
        return value

    def existing_id(self, name: str, value: str) -> str:
        """An id that something may have had before our rules: anything that names something."""
        if not value.strip():
            self.add(name, f"{name} is required")
        elif len(value) > _EXISTING_ID_LENGTH or _CONTROL.search(value):
            self.add(name, f"{quoted(value)} is not an id")
        return value

    def text(
        self, name: str, value: str, *, at_most: int = 1024, required: bool = False,
        lines: bool = False,
    ) -> str:  # fmt: skip
        """A text of at most ``at_most`` characters; only with ``lines`` it may hold several."""
        if required and not value.strip():
            self.add(name, f"{name.rsplit('.', 1)[-1]} is required")
        elif len(value) > at_most:
            self.add(name, f"has {len(value)} characters; accepted are at most {at_most}")
        elif (_CONTROL_IN_LINES if lines else _CONTROL).search(value):
            self.add(name, "holds control characters; accepted is plain text")
        return value

    def reason(
        self, name: str, value: str, *, at_most: int = 1024, required: bool = False,
        lines: bool = False,
    ) -> str:  # fmt: skip
        """Why somebody asks: a text that is kept in records and events, so without secrets, as
        logs have it."""
        told = self.text(name, value, at_most=at_most, required=required, lines=lines)
        return scrubbed(told, ()) if len(told) <= at_most else told

    def amount(self, name: str, value: int, at_most: int, unit: str, *, at_least: int = 0) -> int:
        """A whole number of ``unit`` between the bounds."""
        if not at_least <= value <= at_most:
            self.add(name, f"{value} is not valid; accepted is {at_least} to {at_most} {unit}")
        return value

    def word(self, name: str, value: str, accepted: Mapping[str, T], default: T) -> T:
        """One of the accepted words, in any case and whatever blanks are around it."""
        key = value.strip().lower()
        if not key:
            return default
        if key not in accepted:
            known = ", ".join(dict.fromkeys(map(str, accepted.values())))
            self.add(name, f"{quoted(value)} is not valid; accepted is one of {known}")
            return default
        return accepted[key]

    def absolute_path(self, name: str, value: str) -> str:
        """A path from the root, without steps back."""
        self.text(name, value, at_most=4096, required=True)
        if value.strip() and not value.startswith("/"):
            self.add(name, f"{quoted(value)} is not valid; accepted is a path that begins with /")
        elif ".." in value.split("/"):
            self.add(name, f"{quoted(value)} is not valid; a path may not step back with ..")
        return value

    def count(self, name: str, actual: int, at_most: int) -> None:
        """A list of at most ``at_most`` entries."""
        if actual > at_most:
            self.add(name, f"has {actual} entries; accepted are at most {at_most}")

    def unique(self, name: str, values: Iterable[object], what: str) -> None:
        """No value twice; ``name`` is the field that holds it in each item of this list."""
        seen: dict[object, int] = {}
        for index, value in enumerate(values):
            first = seen.setdefault(value, index)
            if value is not None and first != index:
                place = f"[{index}]" + (f".{name}" if name else "")
                self._found.append(
                    FieldError(self._path + place, f"the same {what} as entry {first}; accepted"
                               " is each only once")
                )  # fmt: skip

    def _join(self, name: str) -> str:
        return f"{self._path}.{name}" if self._path and name else self._path or name
