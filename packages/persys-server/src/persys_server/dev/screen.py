"""The live view of a demonstration: one screen, redrawn whenever something changes.

Decided here: which parts there are and how the lines of the terminal are shared out: events get
what the others leave. ``drawn`` is a pure function of what is known.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

from attrs import evolve, frozen
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from persys_proto.control.v1 import control_pb2 as pb
from persys_server.dev.picture import Picture
from persys_server.dev.tellers import reason_text
from persys_server.dev.verdict import why_waiting

__all__ = ["Scene", "ScreenTeller", "drawn"]

_ROOMY_LINES, _WIDE_COLUMNS = 30, 104
_SAID_LINES = 2
_GAP = 2
_MB_PER_GB = 1024
_STYLES = {
    "Ready": "green",
    "Running": "green",
    "Completed": "cyan",
    "NotReady": "bold red",
    "Failed": "bold red",
    "NodeLost": "bold red",
    "WorkloadFailed": "bold red",
    "Rescheduled": "magenta",
    "Relocated": "magenta",
}
_WAITING_STYLE = "yellow"


@frozen
class Scene:
    """Everything that is on the screen; ``elapsed`` in seconds."""

    title: str = ""
    step: int = 0
    said: tuple[str, ...] = ()
    picture: Picture = Picture()
    explained: str = ""
    explanation: pb.Explanation | None = None
    hints: tuple[str, ...] = ()
    elapsed: float = 0.0


class ScreenTeller:
    """Shows a scene on ``console`` while it is open as a context."""

    def __init__(self, console: Console, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._monotonic = monotonic
        self._began = monotonic()
        self._scene = Scene()
        self._live = Live(
            console=console,
            screen=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )

    def __enter__(self) -> ScreenTeller:
        self._live.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def step(self, title: str) -> None:
        """A new part begins; what was said before is over."""
        self._draw(evolve(self._scene, title=title, step=self._scene.step + 1, said=()))

    def say(self, text: str) -> None:
        """Add a sentence; older ones make room."""
        self._draw(evolve(self._scene, said=(*self._scene.said, text)[-_SAID_LINES:]))

    def show(self, picture: Picture) -> None:
        """The cluster as it stands now."""
        self._draw(evolve(self._scene, picture=picture))

    def explain(self, workload_id: str, explanation: pb.Explanation) -> None:
        """Why a workload waits; the last one asked for stays on the screen."""
        self._draw(evolve(self._scene, explained=workload_id, explanation=explanation))

    def hint(self, lines: Sequence[str]) -> None:
        """How the person can go on."""
        self._draw(evolve(self._scene, hints=tuple(lines)))

    def _draw(self, scene: Scene) -> None:
        self._scene = evolve(scene, elapsed=self._monotonic() - self._began)
        size = self._console.size
        frame = drawn(self._scene, datetime.now(UTC), size.width, size.height)
        self._live.update(frame, refresh=True)


def drawn(scene: Scene, now: datetime, width: int, height: int) -> RenderableType:
    """The screen of ``width`` columns and ``height`` lines."""
    roomy = height >= _ROOMY_LINES
    top = [_head(scene, width), *_said(scene, width)]
    middle = [
        *_part(_nodes(scene.picture, width, max(4, height // 4)), roomy),
        *_part(_workloads(scene.picture, width, max(6, height // 4)), roomy),
        *_part(_explanation(scene, width), roomy),
    ]
    hints = [_cut(Text(line, style="dim"), width) for line in _hints(scene, roomy)]
    bottom = _part(hints, roomy)
    left = height - len(top) - len(middle) - len(bottom)
    events = _part(_events(scene.picture, now, width, left - 1 - roomy), roomy)
    blank = [Text()] * max(0, left - len(events))
    lines = [*top, *middle, *events, *blank, *bottom]
    return Group(*lines[:height])


def _part(lines: Sequence[Text], roomy: bool) -> list[Text]:
    """A part of the screen, with an empty line above where there is room."""
    return [*([Text()] if roomy and lines else []), *lines]


def _head(scene: Scene, width: int) -> Text:
    minutes, seconds = divmod(int(scene.elapsed), 60)
    clock = f"{minutes}:{seconds:02d}"
    title = f"{scene.step}. {scene.title}" if scene.title else "starting"
    left = Text.assemble((" persys ", "bold reverse"), f"  {title}")
    left.append(" " * max(1, width - left.cell_len - len(clock)))
    return left.append(clock, style="dim")


def _said(scene: Scene, width: int) -> list[Text]:
    """The newest sentences, wrapped; always the same number of lines, so that nothing jumps."""
    console = Console(width=width, file=None)
    wrapped = [line for said in scene.said for line in Text(said).wrap(console, width)]
    shown = wrapped[-(_SAID_LINES + 1) :]
    return [*shown, *[Text()] * (_SAID_LINES + 1 - len(shown))]


# -------------------------------------------------------------------------- tables


def _table(width: int, *rows: Sequence[str | Text]) -> list[Text]:
    """Rows as lines; the first one is the header. Only the last column is ever cut."""
    cells = [[each if isinstance(each, Text) else Text(each) for each in row] for row in rows]
    for cell in cells[0]:
        cell.stylize("bold underline")
    widths = [max(cell.cell_len for cell in column) for column in zip(*cells, strict=True)]
    return [_line(row, widths, width) for row in cells]


def _line(cells: Sequence[Text], widths: Sequence[int], width: int) -> Text:
    line = Text()
    for cell, cell_width in zip(cells, widths, strict=True):
        line.append_text(cell).append(" " * (cell_width - cell.cell_len + _GAP))
    line.rstrip()
    return _cut(line, width)


def _capped(lines: list[Text], rows: int) -> list[Text]:
    """A header and at most ``rows`` lines; what is left out is counted."""
    if len(lines) - 1 <= rows:
        return lines
    return [*lines[:rows], Text(f"… and {len(lines) - rows} more", style="dim")]


def _nodes(picture: Picture, width: int, rows: int) -> list[Text]:
    """Where there is no room for all: those that are not well first, then those with most work."""
    if not picture.nodes:
        return []
    wide = width >= _WIDE_COLUMNS
    cells = 20 if wide else 8
    nodes: Sequence[pb.NodeView] = picture.nodes
    if len(nodes) > rows:
        nodes = sorted(nodes, key=lambda node: _interest(picture, node), reverse=True)
    cells_of_nodes = [
        (
            node.node_id,
            _status(node.status),
            _bar(node.total_cpu_cores, node.available_cpu_cores, "", cells),
            _bar(
                node.total_memory_mb / _MB_PER_GB,
                node.available_memory_mb / _MB_PER_GB,
                " GB",
                cells,
            ),
            str(len(picture.on_node(node.node_id))),
            ", ".join(node.supported_workload_types) if wide else _short_types(node),
        )
        for node in nodes
    ]
    header = ("NODE", "STATUS", "CPU IN USE", "MEMORY IN USE", "COUNT", "RUNS")
    return _capped(_table(width, header, *cells_of_nodes), rows)


def _interest(picture: Picture, node: pb.NodeView) -> tuple[bool, int]:
    return node.status != "Ready", len(picture.on_node(node.node_id))


def _short_types(node: pb.NodeView) -> str:
    return " ".join(kind[:3] if kind != "vm" else kind for kind in node.supported_workload_types)


def _bar(total: float, free: float, unit: str, cells: int) -> Text:
    """Allocated of total, as a bar and as numbers; anything above nothing shows."""
    used = max(0.0, total - free)
    share = min(1.0, used / total) if total else 0.0
    full = min(cells, max(round(share * cells), 1 if used else 0))
    style = "green" if share < 0.7 else "yellow" if share < 0.9 else "red"
    return Text.assemble(
        ("█" * full, style), ("░" * (cells - full), "dim"), f" {used:.3g}/{total:.3g}{unit}"
    )


def _workloads(picture: Picture, width: int, rows: int) -> list[Text]:
    if not picture.workloads:
        return []
    cells = [
        (
            view.workload_id,
            view.type,
            _status(view.status),
            view.assigned_node_id or "-",
            why_waiting(view),
        )
        for view in picture.workloads
    ]
    return _capped(_table(width, ("WORKLOAD", "TYPE", "STATUS", "NODE", "WHY"), *cells), rows)


def _status(word: str) -> Text:
    return Text(word, style=_STYLES.get(word, _WAITING_STYLE))


def _explanation(scene: Scene, width: int) -> list[Text]:
    if scene.explanation is None:
        return []
    why = scene.explanation
    lines = [
        Text.assemble((f"WHY {scene.explained} WAITS", "bold underline"), f"  {why.summary}"),
        *(Text(f"  {reason_text(reason)}") for reason in why.reasons),
        *([Text(f"  next: {why.next_step}", style="dim")] if why.next_step else []),
    ]
    return [_cut(line, width) for line in lines]


def _events(picture: Picture, now: datetime, width: int, rows: int) -> list[Text]:
    """As many of the newest events as there is room for, oldest first."""
    if rows < 1 or not picture.events:
        return []
    shown = [
        (
            _ago(event, now),
            Text(event.type, style=_STYLES.get(event.type, "")),
            " ".join(filter(None, (event.workload_id, event.node_id))),
            event.reason,
        )
        for event in picture.events[-rows:]
    ]
    return _table(width, ("AGO", "EVENT", "WHAT", "DETAIL"), *shown)


def _ago(event: pb.SchedulerEventView, now: datetime) -> str:
    seconds = (now - event.timestamp.ToDatetime(tzinfo=UTC)).total_seconds()
    return f"{max(0, int(seconds))}s"


def _hints(scene: Scene, roomy: bool) -> Iterable[str]:
    return scene.hints if roomy else scene.hints[:2]


def _cut(line: Text, width: int) -> Text:
    line.truncate(width, overflow="ellipsis")
    return line
