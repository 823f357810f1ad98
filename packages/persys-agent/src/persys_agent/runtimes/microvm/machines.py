"""The machines of an agent on this host: folders, processes and APIs taken together.

Decided here: what a folder and its process say about an instance. A process that ended is waited
for by whoever looks first, and its code is written down, so it is told also after a restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from attrs import evolve

from persys_agent.runtimes.machine.usage import Counters
from persys_agent.runtimes.microvm.api import GuestState
from persys_agent.runtimes.microvm.process import ProcessId, is_alive, reap
from persys_agent.runtimes.microvm.records import Ending, MachineFolder, Record
from persys_agent.runtimes.port import Instance
from persys_core.model.observation import AgentState

__all__ = ["counters_of", "ended_instance", "live_instance", "settled", "silent_instance"]

_TICKS_PER_SECOND = 100  # of every Linux that Firecracker runs on
_NS_PER_TICK = 10**9 // _TICKS_PER_SECOND
_USER, _SYSTEM, _RSS_PAGES = 11, 12, 21
_PAGE_BYTES = 4096
_STATES = {
    GuestState.NOT_STARTED: (AgentState.PENDING, "starting"),
    GuestState.RUNNING: (AgentState.RUNNING, "running"),
    GuestState.PAUSED: (AgentState.PENDING, "paused"),
}


def settled(folder: MachineFolder, record: Record) -> Record:
    """The record with the end of its process, written down once that has ended."""
    if record.process is None or is_alive(record.process):
        return record
    ending = Ending(reap(record.process), datetime.now(UTC), record.is_stopping)
    ended = evolve(record, process=None, is_stopping=False, ending=ending)
    folder.write(ended)
    folder.socket.unlink(missing_ok=True)
    return ended


def ended_instance(record: Record) -> Instance:
    """An instance without a process."""
    ending = record.ending
    if ending is None:
        return _instance(record, AgentState.STOPPED, "created")
    code = 0 if ending.was_asked else ending.code
    is_good = code in {0, None}
    state = AgentState.STOPPED if is_good else AgentState.FAILED
    message = "ended, with a code that nobody knows" if code is None else f"exited with code {code}"
    ended = _instance(record, state, message)
    return evolve(ended, exit_code=code, finished_at=ending.at)


def live_instance(record: Record, state: GuestState) -> Instance:
    """An instance whose Firecracker answered."""
    known, message = _STATES[state]
    return _instance(record, known, message)


def silent_instance(record: Record, reason: str) -> Instance:
    """An instance whose Firecracker runs and does not answer."""
    return _instance(record, AgentState.UNKNOWN, reason)


def counters_of(process: ProcessId, taps: tuple[str, ...]) -> Counters:
    """What the process and its TAP devices counted; zeros for what cannot be read."""
    fields = _read(f"/proc/{process.pid}/stat").rpartition(")")[2].split()
    has_stat = len(fields) > _RSS_PAGES
    io = _pairs(_read(f"/proc/{process.pid}/io"))
    return Counters(
        cpu_ns=(int(fields[_USER]) + int(fields[_SYSTEM])) * _NS_PER_TICK if has_stat else 0,
        memory_bytes=int(fields[_RSS_PAGES]) * _PAGE_BYTES if has_stat else 0,
        disk_read_bytes=io.get("read_bytes", 0),
        disk_write_bytes=io.get("write_bytes", 0),
        # What the guest receives is what the host sent into its TAP device.
        net_rx_bytes=sum(_counted(tap, "tx_bytes") for tap in taps),
        net_tx_bytes=sum(_counted(tap, "rx_bytes") for tap in taps),
    )


def _instance(record: Record, state: AgentState, message: str) -> Instance:
    return Instance(
        record.workload_id,
        record.revision_id,
        record.spec_hash,
        state,
        message,
        started_at=record.started_at,
        metadata={**record.metadata, "vm.instance_id": record.instance_id},
    )


def _counted(tap: str, name: str) -> int:
    text = _read(f"/sys/class/net/{tap}/statistics/{name}") if "/" not in tap else ""
    return int(text) if text.strip().isdigit() else 0


def _pairs(text: str) -> Mapping[str, int]:
    pairs = (line.partition(":") for line in text.splitlines())
    return {name: int(value) for name, _, value in pairs if value.strip().isdigit()}


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
