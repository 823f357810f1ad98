"""Commands that are scripted: what each command is answered with, and a record of all that ran.

Decided here: a command that nobody scripted fails the test, since a driver that runs something
unexpected on a host is what these tests are for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from fnmatch import fnmatchcase

from attrs import frozen

from persys_agent.commands import CommandResult

__all__ = ["Call", "ScriptedCommands"]

Effect = Callable[[Sequence[str]], None]
Answer = Callable[[Sequence[str]], CommandResult]


@frozen
class Call:
    """A command that was run."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    input: bytes

    def __str__(self) -> str:
        return " ".join(self.argv)


@frozen
class _Rule:
    pattern: tuple[str, ...]
    result: CommandResult
    error: Exception | None
    effect: Effect | None
    hangs: bool
    answer: Answer | None

    def matches(self, argv: Sequence[str]) -> bool:
        first = argv[: len(self.pattern)]
        return len(first) == len(self.pattern) and all(
            fnmatchcase(word, pattern) for word, pattern in zip(first, self.pattern, strict=True)
        )


class ScriptedCommands:
    """``Commands`` that run nothing. A later rule wins over an earlier one.

    ``hanging`` is set once a command hangs.
    """

    def __init__(self, *, programs: Iterable[str] | None = None) -> None:
        """``programs`` are those that ``find`` finds; all, if not given."""
        self.calls: list[Call] = []
        self.hanging = asyncio.Event()
        self._programs = None if programs is None else frozenset(programs)
        self._rules: list[_Rule] = []

    def on(
        self,
        *pattern: str,
        code: int = 0,
        stdout: str = "",
        stderr: str = "",
        error: Exception | None = None,
        effect: Effect | None = None,
        hangs: bool = False,
        answer: Answer | None = None,
    ) -> ScriptedCommands:
        """Answer the commands whose first words match ``pattern`` (``*`` as in file names).

        ``error`` is raised instead; ``effect`` is called with the words where the code is 0;
        ``hangs`` never ends; ``answer`` is asked for the whole result instead.
        """
        result = CommandResult(code, stdout.encode(), stderr.encode(), stderr or stdout)
        self._rules.insert(0, _Rule(pattern, result, error, effect, hangs, answer))
        return self

    async def run(
        self,
        argv: Sequence[str],
        *,
        timeout: timedelta,
        env: Mapping[str, str] | None = None,
        cwd: str = "",
        input: bytes = b"",
    ) -> CommandResult:
        """The scripted answer. ``AssertionError`` where there is none."""
        self.calls.append(Call(tuple(argv), dict(env or {}), cwd, input))
        rule = next((rule for rule in self._rules if rule.matches(argv)), None)
        assert rule is not None, f"nobody scripted: {' '.join(argv)}"
        if rule.hangs:
            self.hanging.set()
            await asyncio.Event().wait()
        if rule.error is not None:
            raise rule.error
        if rule.answer is not None:
            return rule.answer(argv)
        if rule.effect is not None and rule.result.ok:
            rule.effect(argv)
        return rule.result

    def find(self, program: str) -> str:
        """A path for each program that is there."""
        is_there = self._programs is None or program in self._programs
        return f"/usr/bin/{program}" if is_there else ""

    @property
    def ran(self) -> list[str]:
        """All commands, each as one text."""
        return [str(call) for call in self.calls]
