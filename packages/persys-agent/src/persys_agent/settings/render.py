"""``sample-agent.yaml`` and the tables of docs/agent.md, written from the table of settings.

Decided here: the look of both. A test compares the files in the repository with what stands here.
"""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

from persys_agent.settings.parse import Span
from persys_agent.settings.table import Group, Setting, settings_table

__all__ = ["markdown_table", "sample_file"]

_WIDTH = 98
_INTRO = (
    "# Settings of the Persys agent, each with its default: agent_config.yaml.",
    "# Written by: python -m persys_agent.settings --sample",
    "#",
    "# It is looked for in /etc/persys, in ~/.persys (not for root) and in the working folder;",
    "# PERSYS_CONFIG_FILE or --config names another. Each key can also be set as PERSYS_<KEY> in",
    "# the environment, which wins. Durations are such as 15s, 2m, 24h or bare seconds. An empty",
    "# value is the default. <data> is agent_data_dir.",
)
_DATA = "/var/lib/persys"
_HEAD = "| Key | In the environment | Default | Meaning |"
_RULE = "| --- | --- | --- | --- |"


def sample_file() -> str:
    """The sample: every setting as a comment, so that nothing is set by it."""
    lines = list(_INTRO)
    for group in Group:
        lines += ["", "", f"# ---- {group}"]
        for setting in _of(group):
            comment = (f"# {line}" for line in wrap(" ".join(_notes(setting)), _WIDTH))
            lines += ["", *comment, f"# {setting.key}: {_default(setting)}".rstrip()]
    return "\n".join(lines) + "\n"


def markdown_table() -> str:
    """Every setting as tables in Markdown, one per group."""
    parts = []
    for group in Group:
        rows = [_row(setting) for setting in _of(group)]
        parts.append("\n".join([f"### {group}", "", _HEAD, _RULE, *rows]))
    return "\n\n".join(parts) + "\n"


def _of(group: Group) -> Iterator[Setting]:
    return (setting for setting in settings_table().values() if setting.group is group)


def _default(setting: Setting) -> str:
    """As it is for root; the intro says what other users get."""
    if setting.key == "agent_data_dir":
        return _DATA
    return setting.default.replace("{data}", "<data>").replace("{libvirt}", "qemu:///system")


def _notes(setting: Setting) -> Iterator[str]:
    yield setting.doc
    if setting.key == "agent_data_dir":
        yield "For other users than root it is $XDG_STATE_HOME/persys or ~/.local/state/persys."
    if setting.key == "libvirt_uri":
        yield "For other users than root it is qemu:///session."
    if isinstance(setting.parse, Span):
        yield f"{str(setting.parse).capitalize()}."
    if setting.secret:
        yield "Secret: never shown or logged."
    if setting.later:
        yield f"Checked but not used yet: waits for {setting.later}."


def _row(setting: Setting) -> str:
    default = f"`{_default(setting)}`" if setting.default else "(empty)"
    variables = ", ".join(f"`{name}`" for name in setting.variables)
    return f"| `{setting.key}` | {variables} | {default} | {' '.join(_notes(setting))} |"
