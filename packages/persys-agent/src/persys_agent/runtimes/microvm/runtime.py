"""MicroVMs on Firecracker, behind the port of runtimes.

Decided here: one Firecracker process for each machine, started when the machine is, that outlives
the agent and is found again by its folder. Stopping sends Ctrl-Alt-Del, which Linux guests take for
an orderly shutdown, and ends the process after the grace. A new revision begins with a fresh copy
of its image; what has to survive lies on volumes.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from attrs import define, evolve, field

from persys_agent.runtimes.machine.alone import OneAtATime
from persys_agent.runtimes.machine.console import console_lines, limit_console
from persys_agent.runtimes.machine.refusal import RefusesCommands
from persys_agent.runtimes.machine.usage import Counters, UsageMeter
from persys_agent.runtimes.microvm.api import Action, FirecrackerApi, GuestState
from persys_agent.runtimes.microvm.builder import build_machine, launch
from persys_agent.runtimes.microvm.machines import (
    counters_of,
    ended_instance,
    live_instance,
    settled,
    silent_instance,
)
from persys_agent.runtimes.microvm.plan import plan_machine
from persys_agent.runtimes.microvm.process import kill, wait_end
from persys_agent.runtimes.microvm.records import MachineFolder, Record, folder_of, folders
from persys_agent.runtimes.microvm.settings import MicroVmSettings
from persys_agent.runtimes.port import (
    Capability,
    Creation,
    FailureCode,
    Instance,
    LogLine,
    Order,
    Owner,
    RuntimeFailedError,
    RuntimeUnavailableError,
)
from persys_core.model.ids import WorkloadId, is_valid_id
from persys_core.model.states import WorkloadType
from persys_core.model.usage import WorkloadUsage

__all__ = ["FirecrackerRuntime"]

_SOURCE = "firecracker.proc"
_MAX_SOCKET_PATH = 107
_KILL_SECONDS = 5.0
_VERSION_SECONDS = 5.0


@define(eq=False)
class FirecrackerRuntime(RefusesCommands):
    """The microVMs of ``owner`` on this host. ``kvm`` is the device that Firecracker needs."""

    owner: Owner
    settings: MicroVmSettings = MicroVmSettings()
    kvm: Path = Path("/dev/kvm")
    kind: WorkloadType = field(default=WorkloadType.MICROVM, init=False)
    _meter: UsageMeter = field(init=False)
    _alone: OneAtATime = field(factory=OneAtATime, init=False)

    def __attrs_post_init__(self) -> None:
        self._meter = UsageMeter(self.owner.node_id, self.kind, _SOURCE)

    async def probe(self) -> Capability:
        """As the port says: the binary answers with its version, KVM may be used, paths fit."""
        try:
            await asyncio.to_thread(self._check)
            version = await self._version()
        except RuntimeUnavailableError as error:
            return Capability(False, str(error))
        if not os.access(self.kvm, os.R_OK | os.W_OK):
            return Capability(False, f"{version} needs {self.kvm}, which may not be opened here")
        return Capability(True, version)

    async def create(self, order: Order) -> Creation:
        """As the port says."""
        if not is_valid_id(order.workload_id):
            text = f"{order.workload_id!r} cannot be the name of a machine"
            raise RuntimeFailedError(FailureCode.INVALID_SPEC, text)
        await asyncio.to_thread(self._check)
        return await self._alone.finish(order.workload_id, lambda: self._create(order))

    async def start(self, workload_id: WorkloadId) -> None:
        """As the port says; a paused machine goes on."""
        await self._alone.finish(workload_id, lambda: self._start(workload_id))

    async def stop(self, workload_id: WorkloadId, grace: timedelta) -> None:
        """As the port says."""
        folder, record = await self._found(workload_id)
        process = record.process if record is not None else None
        if record is None or process is None:
            return
        record = evolve(record, is_stopping=True)
        await asyncio.to_thread(folder.write, record)
        with suppress(RuntimeUnavailableError, RuntimeFailedError):  # then it is ended by force
            api = self._api(folder)
            if (await api.info()).state is GuestState.RUNNING:
                await api.act(Action.CTRL_ALT_DEL)
                await wait_end(process, grace.total_seconds())
        await self._end(folder, record)

    async def remove(self, workload_id: WorkloadId, *, with_data: bool = False) -> None:
        """As the port says; the machine's disks go with it, those of volumes stay."""
        await asyncio.to_thread(self._check)
        await self._alone.finish(workload_id, lambda: self._remove(workload_id))

    async def inspect(self, workload_id: WorkloadId) -> Instance | None:
        """As the port says."""
        folder, record = await self._found(workload_id)
        return None if record is None else await self._instance(folder, record)

    async def instances(self) -> Sequence[Instance]:
        """As the port says; one whose Firecracker does not answer is ``Unknown``."""
        found = await asyncio.to_thread(self._all)
        every = [await self._instance_or_unknown(folder, record) for folder, record in found]
        return sorted(every, key=lambda each: each.workload_id)

    async def usage(self) -> Mapping[WorkloadId, WorkloadUsage]:
        """As the port says; a machine that was not seen by the last call is not there yet."""
        return self._meter.measure(await asyncio.to_thread(self._counted))

    async def logs(
        self, workload_id: WorkloadId, *, tail: int, follow: bool
    ) -> AsyncIterator[LogLine]:
        """What the serial console showed. Raises ``RuntimeFailedError`` for what is not there."""
        folder, record = await self._found(workload_id)
        if record is None:
            raise _absent(workload_id)

        async def is_running() -> bool:
            _, now = await self._found(workload_id)
            return now is not None and now.process is not None

        path = folder.console
        async for line in console_lines(path, tail=tail, follow=follow, is_running=is_running):
            yield line

    async def aclose(self) -> None:
        """As the port says."""
        await self._alone.aclose()

    async def _create(self, order: Order) -> Creation:
        name = order.workload_id
        folder, record = await self._found(name, is_conflict=True)
        is_there = record is not None and record.is_complete
        if record is not None and is_there and order.is_of(record.revision_id, record.spec_hash):
            return Creation.ADOPTED
        plan = await asyncio.to_thread(plan_machine, order, folder, self.settings)
        if record is not None:
            await self.stop(name, self.settings.replace_grace)
            await asyncio.to_thread(folder.delete)
        begun = Record.begun(order, self.owner)
        if not await asyncio.to_thread(folder.make, begun):
            raise _conflict(name)
        await build_machine(plan, begun)
        return Creation.REPLACED if is_there else Creation.CREATED

    async def _start(self, workload_id: WorkloadId) -> None:
        folder, record = await self._found(workload_id)
        if record is None:
            raise _absent(workload_id)
        if record.process is None:
            await launch(folder, record, self.settings)
            return
        api = self._api(folder)
        match (await api.info()).state:
            case GuestState.RUNNING:
                return
            case GuestState.PAUSED:
                await api.resume()
            case GuestState.NOT_STARTED:  # an earlier agent ended between the two
                await self._end(folder, record)
                await launch(folder, record, self.settings)

    async def _remove(self, workload_id: WorkloadId) -> None:
        folder, record = await self._found(workload_id, is_any=True)
        if record is not None:
            await self._end(folder, record)
            await asyncio.to_thread(folder.delete)

    async def _end(self, folder: MachineFolder, record: Record) -> None:
        if record.process is not None:
            kill(record.process)
            await wait_end(record.process, _KILL_SECONDS)
            await asyncio.to_thread(self._read, folder)

    async def _found(
        self, workload_id: WorkloadId, *, is_conflict: bool = False, is_any: bool = False
    ) -> tuple[MachineFolder, Record | None]:
        """The machine of ours, complete ones only unless ``is_any``; with ``is_conflict`` another
        agent's raises."""
        folder = folder_of(self.settings.state_dir, workload_id)
        record = await asyncio.to_thread(self._read, folder)
        if record is not None and record.owner != self.owner:
            if is_conflict:
                raise _conflict(workload_id)
            return folder, None
        if record is not None and not (record.is_complete or is_conflict or is_any):
            return folder, None
        return folder, record

    def _read(self, folder: MachineFolder) -> Record | None:
        self._check()
        try:
            record = folder.read()
            is_ours = record is not None and record.owner == self.owner
            return settled(folder, record) if record is not None and is_ours else record
        except (OSError, ValueError) as error:
            raise RuntimeUnavailableError(f"cannot read {folder.path}: {error}") from error

    def _all(self) -> list[tuple[MachineFolder, Record]]:
        self._check()
        read = ((folder, self._read(folder)) for folder in folders(self.settings.state_dir))
        return [
            (folder, record)
            for folder, record in read
            if record is not None and record.owner == self.owner and record.is_complete
        ]

    def _counted(self) -> dict[WorkloadId, Counters]:
        counted = {}
        for folder, record in self._all():
            if record.process is not None:
                counted[record.workload_id] = counters_of(record.process, record.taps)
                limit_console(folder.console, self.settings.console_max_bytes)
        return counted

    async def _instance(self, folder: MachineFolder, record: Record) -> Instance:
        if record.process is None:
            return ended_instance(record)
        try:
            info = await self._api(folder).info()
        except RuntimeUnavailableError:
            # It may have ended since we looked.
            now = await asyncio.to_thread(self._read, folder)
            if now is not None and now.process is None:
                return ended_instance(now)
            raise
        if info.id != record.instance_id:
            raise RuntimeUnavailableError(f"another instance answers at {folder.socket}")
        return live_instance(record, info.state)

    async def _instance_or_unknown(self, folder: MachineFolder, record: Record) -> Instance:
        try:
            return await self._instance(folder, record)
        except RuntimeUnavailableError as error:
            return silent_instance(record, str(error))

    def _api(self, folder: MachineFolder) -> FirecrackerApi:
        return FirecrackerApi(folder.socket, self.settings.call_timeout)

    def _check(self) -> None:
        """Raises ``RuntimeUnavailableError`` where nothing can be known of microVMs."""
        if not os.access(self.settings.binary, os.X_OK):
            text = f"no firecracker at {self.settings.binary}: install it there, or name its path"
            raise RuntimeUnavailableError(text)
        socket = folder_of(self.settings.state_dir, "w").socket
        if len(os.fsencode(socket)) > _MAX_SOCKET_PATH:
            text = (
                f"{self.settings.state_dir} is too long for unix sockets in it; name a shorter one"
            )
            raise RuntimeUnavailableError(text)

    async def _version(self) -> str:
        process = await asyncio.create_subprocess_exec(
            str(self.settings.binary),
            "--version",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(_VERSION_SECONDS):
                output, _ = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            raise RuntimeUnavailableError("firecracker --version does not end") from None
        lines = output.decode(errors="replace").splitlines()
        if process.returncode or not lines:
            raise RuntimeUnavailableError("firecracker --version failed")
        return lines[0]


def _conflict(name: WorkloadId) -> RuntimeFailedError:
    text = f"another agent of this host has a microVM {name}; it is left alone"
    return RuntimeFailedError(FailureCode.NAME_CONFLICT, text)


def _absent(name: WorkloadId) -> RuntimeFailedError:
    return RuntimeFailedError(FailureCode.RUNTIME_ERROR, f"no microVM {name} of this agent")
