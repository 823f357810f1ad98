"""``sample.env`` and the settings page of the documentation, written from the table.

Decided here: the look of both. A test compares the files in the repository with what stands here.
"""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

from persys_server.settings.parse import Span
from persys_server.settings.table import Group, Variable, variables

__all__ = ["markdown_table", "sample_env"]

_WIDTH = 98
_INTRO = (
    "# Settings of the Persys scheduler, each with its default.",
    "# Written by: python -m persys_server.settings --sample",
    "#",
    "# Durations are such as 15s, 2m, 1h30m, 500ms, or bare seconds. Switches are true or false.",
    "# An empty value is the default.",
)


def sample_env() -> str:
    """The text of ``sample.env``: every variable as a comment, so that nothing is set by it."""
    lines = list(_INTRO)
    for group in Group:
        lines += ["", "", f"# ---- {group}"]
        for variable in _of(group):
            lines += ["", *_comment(variable), f"# {variable.name}={variable.default}"]
    return "\n".join(lines) + "\n"


def markdown_table() -> str:
    """Every variable as tables in Markdown, one per group."""
    parts = []
    for group in Group:
        rows = [_row(variable) for variable in _of(group)]
        parts.append("\n".join([f"### {group}", "", _HEAD, _RULE, *rows]))
    return "\n\n".join(parts) + "\n"


_HEAD = "| Variable | Default | Meaning |"
_RULE = "| --- | --- | --- |"


def _of(group: Group) -> Iterator[Variable]:
    return (variable for variable in variables().values() if variable.group is group)


def _notes(variable: Variable) -> Iterator[str]:
    yield variable.doc
    if isinstance(variable.parse, Span):
        yield f"{str(variable.parse).capitalize()}."
    if variable.fallbacks:
        yield f"Where it is not set, {', '.join(variable.fallbacks)} counts."
    if variable.secret:
        yield "Secret: never shown or logged."
    if variable.later:
        yield f"Checked but not used yet: waits for {variable.later}."


def _comment(variable: Variable) -> Iterator[str]:
    return (f"# {line}" for line in wrap(" ".join(_notes(variable)), _WIDTH))


def _row(variable: Variable) -> str:
    default = f"`{variable.default}`" if variable.default else "(empty)"
    return f"| `{variable.name}` | {default} | {' '.join(_notes(variable))} |"
