"""What is wrong with manifests: collected, never raised one by one.

Decided here: how a problem is worded for people (file, document, path, line). Not decided here:
what is a problem.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from persysctl.errors import UsageError

__all__ = ["ManifestError", "Origin", "Problem", "Problems"]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a document came from: the file as the user named it, and its number there from 1."""

    file: str
    document: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.document}"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong; ``path`` is like ``spec.ports[0].host``, empty for the whole."""

    origin: Origin
    path: str
    text: str
    line: int | None = None

    def __str__(self) -> str:
        where = f"{self.origin}:{self.path}" if self.path else str(self.origin)
        line = f" (line {self.line})" if self.line else ""
        return f"{where}{line}: {self.text}"


@dataclass(slots=True)
class Problems:
    """All problems of one load, in the order in which they were found."""

    found: list[Problem] = field(default_factory=list)

    def add(self, origin: Origin, path: str, text: str, line: int | None = None) -> None:
        """Take note of one problem and go on."""
        self.found.append(Problem(origin, path, text, line))

    def __iter__(self) -> Iterator[Problem]:
        return iter(self.found)

    def __bool__(self) -> bool:
        return bool(self.found)


class ManifestError(UsageError):
    """Manifests are wrong; ``problems`` names every one of them. Nothing was sent."""

    def __init__(self, problems: Problems) -> None:
        self.problems = tuple(problems)
        count = len(self.problems)
        head = f"{count} problem{'s' if count > 1 else ''} in the manifests; nothing was sent:"
        super().__init__("\n".join([head, *(f"  {problem}" for problem in self.problems)]))
