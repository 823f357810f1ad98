"""From a plan to a machine on disk, and from there to a running Firecracker.

Decided here: the order of steps, and that a step that fails leaves nothing: no folder after a
failed creation, no process after a failed start.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from attrs import evolve

from persys_agent.runtimes.cloud_init.image import write_seed
from persys_agent.runtimes.machine.console import limit_console
from persys_agent.runtimes.machine.images import clone_image, storage_failure
from persys_agent.runtimes.microvm.api import Action, FirecrackerApi
from persys_agent.runtimes.microvm.plan import MachinePlan
from persys_agent.runtimes.microvm.process import ProcessId, is_alive, kill, spawn, wait_end
from persys_agent.runtimes.microvm.records import MachineFolder, Record
from persys_agent.runtimes.microvm.settings import MicroVmSettings
from persys_agent.runtimes.port import (
    FailureCode,
    RuntimeFailedError,
    RuntimeUnavailableError,
)

__all__ = ["build_machine", "launch"]

_POLL_SECONDS = 0.02
_END_SECONDS = 5.0
_LOG_LEVEL = "Warning"


async def build_machine(plan: MachinePlan, record: Record) -> None:
    """Make the files of a machine whose folder is taken. Raises ``RuntimeFailedError``."""
    try:
        await _write(plan, record)
    except OSError as error:
        await asyncio.to_thread(plan.folder.delete)
        raise storage_failure(error, "cannot write the machine's files") from error
    except BaseException:
        await asyncio.to_thread(plan.folder.delete)
        raise


async def launch(folder: MachineFolder, record: Record, settings: MicroVmSettings) -> Record:
    """Start Firecracker and the guest. Raises ``RuntimeFailedError``, and leaves no process."""
    await asyncio.to_thread(limit_console, folder.console, settings.console_max_bytes)
    await asyncio.to_thread(folder.socket.unlink, missing_ok=True)
    process = await asyncio.to_thread(_spawn, folder, record, settings)
    # Written down before anything else is done, so that a restarted agent knows of the process.
    started = evolve(record, process=process, started_at=datetime.now(UTC), ending=None)
    try:
        await asyncio.to_thread(folder.write, started)
        api = FirecrackerApi(folder.socket, settings.call_timeout)
        await _answering(api, process, settings.start_timeout.total_seconds())
        await _configure(api, folder, record)
        await api.act(Action.START)
    except BaseException:
        kill(process)
        await wait_end(process, _END_SECONDS)
        await asyncio.to_thread(folder.write, record)
        raise
    return started


async def _write(plan: MachinePlan, record: Record) -> None:
    for drive in plan.drives:
        if await asyncio.to_thread(drive.is_missing):
            await clone_image(drive.image, drive.path, drive.size_gb)
    metadata = {}
    if plan.seed is not None:
        metadata = (await write_seed(plan.seed, plan.seed_path)).metadata()
    complete = evolve(
        record,
        is_complete=True,
        requests=plan.requests,
        taps=plan.taps,
        metadata=metadata,
    )
    await asyncio.to_thread(plan.folder.write, complete)


def _spawn(folder: MachineFolder, record: Record, settings: MicroVmSettings) -> ProcessId:
    command = [str(settings.binary), "--api-sock", str(folder.socket), "--id", record.instance_id]
    try:
        return spawn(command, folder.console)
    except OSError as error:
        text = f"cannot start {settings.binary}: {error.strerror}"
        raise RuntimeFailedError(FailureCode.RUNTIME_ERROR, text) from error


async def _answering(api: FirecrackerApi, process: ProcessId, seconds: float) -> None:
    """Wait until the API answers."""
    try:
        async with asyncio.timeout(seconds):
            while True:
                try:
                    await api.info()
                    return
                except RuntimeUnavailableError:
                    if not is_alive(process):
                        text = "firecracker ended as soon as it was started; see the machine's logs"
                        raise RuntimeFailedError(FailureCode.RUNTIME_ERROR, text) from None
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        text = f"firecracker did not answer within {seconds:g} s of its start"
        raise RuntimeFailedError(FailureCode.RUNTIME_ERROR, text) from None


async def _configure(api: FirecrackerApi, folder: MachineFolder, record: Record) -> None:
    log = folder.path / "firecracker.log"
    await asyncio.to_thread(log.touch, 0o600)
    await api.put("/logger", {"log_path": str(log), "level": _LOG_LEVEL, "show_level": True})
    for path, body in record.requests:
        await api.put(path, body)
