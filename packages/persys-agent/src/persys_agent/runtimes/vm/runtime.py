"""Virtual machines on libvirt, behind the port of runtimes.

Decided here: which steps each verb takes, and libvirt's refusals in the codes of the port. A domain
has the workload's id as its name; whose it is stands in its metadata (``ownership.py``). Stopping
asks over ACPI and looks twice a second, so a guest that takes long holds up no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import timedelta
from typing import TypeVar

from attrs import define, evolve, field

from persys_agent.runtimes.machine.alone import OneAtATime
from persys_agent.runtimes.machine.console import console_lines, limit_console
from persys_agent.runtimes.machine.images import storage_failure
from persys_agent.runtimes.machine.refusal import RefusesCommands
from persys_agent.runtimes.machine.usage import UsageMeter
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
from persys_agent.runtimes.vm import domains
from persys_agent.runtimes.vm.accelerator import kvm_works
from persys_agent.runtimes.vm.binding import Connection, LibvirtModule, load_libvirt
from persys_agent.runtimes.vm.builder import Build, build_domain, plan_build, release_old
from persys_agent.runtimes.vm.folders import WorkloadFolder, folder_of
from persys_agent.runtimes.vm.host import Host, host_of
from persys_agent.runtimes.vm.link import LibvirtLink, LibvirtRefusedError
from persys_agent.runtimes.vm.settings import Accelerator, VmSettings
from persys_agent.runtimes.vm.usage import SOURCE
from persys_core.model.ids import WorkloadId, is_valid_id
from persys_core.model.states import WorkloadType
from persys_core.model.usage import WorkloadUsage

__all__ = ["LibvirtRuntime"]

_T = TypeVar("_T")
_MAX_NAME = 240  # libvirt keeps <name>.xml, and the limit of a file's name is 255
_POLL_SECONDS = 0.5
_ASK_AGAIN_SECONDS = 10.0
_INVALID_SPEC_CODES = frozenset({8, 27, 35, 43, 67})
"""INVALID_ARG, XML_ERROR, XML_DETAIL, NO_NETWORK, CONFIG_UNSUPPORTED."""


@define(eq=False)
class LibvirtRuntime(RefusesCommands):
    """The libvirt of this host, reached at ``uri``, with the machines of ``owner`` on it."""

    uri: str
    owner: Owner
    settings: VmSettings = VmSettings()
    load: Callable[[], LibvirtModule] = load_libvirt
    kind: WorkloadType = field(default=WorkloadType.VM, init=False)
    _link: LibvirtLink = field(init=False)
    _meter: UsageMeter = field(init=False)
    _alone: OneAtATime = field(factory=OneAtATime, init=False)
    _host: Host | None = field(default=None, init=False)
    _kvm: dict[str, bool] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self._link = LibvirtLink(self.uri, self.settings.call_timeout, self.load)
        self._meter = UsageMeter(self.owner.node_id, self.kind, SOURCE)

    async def probe(self) -> Capability:
        """As the port says; the detail names both versions and how guests run."""
        try:
            versions = await self._link.call(lambda it: (it.getLibVersion(), it.getVersion()))
            self._host = None
            host = await self._known_host()
        except (RuntimeUnavailableError, RuntimeFailedError, LibvirtRefusedError) as error:
            return Capability(False, str(error))
        library, hypervisor = map(_version, versions)
        how = f"{host.machine} with {host.virt_type}"
        return Capability(True, f"libvirt {library}, QEMU {hypervisor}, {how}")

    async def create(self, order: Order) -> Creation:
        """As the port says."""
        name = order.workload_id
        if not is_valid_id(name) or len(name) > _MAX_NAME:
            text = f"{name!r} cannot be the name of a machine"
            raise RuntimeFailedError(FailureCode.INVALID_SPEC, text)
        return await self._alone.finish(name, lambda: self._create(order))

    async def start(self, workload_id: WorkloadId) -> None:
        """As the port says; a paused machine goes on."""

        def work(connection: Connection) -> bool:
            found = self._ours(connection, workload_id)
            if found is not None:
                domains.run(found.domain)
            return found is not None

        await asyncio.to_thread(self._limit_console, workload_id)
        if not await self._call(work):
            text = f"no machine {workload_id} of this agent"
            raise RuntimeFailedError(FailureCode.RUNTIME_ERROR, text)

    async def stop(self, workload_id: WorkloadId, grace: timedelta) -> None:
        """As the port says."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace.total_seconds()
        ask_at = loop.time()
        while (now := loop.time()) < deadline:
            stage = await self._stage(workload_id, ask=now >= ask_at)
            if not stage.is_active:
                return
            if not stage.is_listening:
                break
            ask_at += _ASK_AGAIN_SECONDS if now >= ask_at else 0
            await asyncio.sleep(min(_POLL_SECONDS, max(0.0, deadline - loop.time())))
        await self._call(lambda connection: self._end(connection, workload_id))

    async def remove(self, workload_id: WorkloadId, *, with_data: bool = False) -> None:
        """As the port says. The disks that we made go with the machine, ``with_data`` or not;
        volumes of the storage drivers stay."""
        if is_valid_id(workload_id):
            await self._alone.finish(workload_id, lambda: self._remove(workload_id))

    async def inspect(self, workload_id: WorkloadId) -> Instance | None:
        """As the port says."""

        def work(connection: Connection) -> Instance | None:
            found = self._ours(connection, workload_id)
            if found is None or found.mark is None:
                return None
            return domains.instance_of(found.domain, found.mark)

        return await self._call(work)

    async def instances(self) -> Sequence[Instance]:
        """As the port says."""
        return await self._call(lambda connection: domains.instances_of(connection, self.owner))

    async def usage(self) -> Mapping[WorkloadId, WorkloadUsage]:
        """As the port says; a machine that was not seen by the last call is not there yet."""
        counted = await self._call(lambda it: domains.read_counters(it, self.owner))
        for workload_id in counted:
            await asyncio.to_thread(self._limit_console, workload_id)
        return self._meter.measure(counted)

    async def logs(
        self, workload_id: WorkloadId, *, tail: int, follow: bool
    ) -> AsyncIterator[LogLine]:
        """What the serial console showed. Raises ``RuntimeFailedError`` for what is not there."""
        if await self.inspect(workload_id) is None:
            text = f"no machine {workload_id} of this agent"
            raise RuntimeFailedError(FailureCode.RUNTIME_ERROR, text)

        async def is_running() -> bool:
            return (await self._stage(workload_id)).is_active

        path = self._folder(workload_id).console
        try:
            async for line in console_lines(path, tail=tail, follow=follow, is_running=is_running):
                yield line
        except PermissionError as error:
            text = f"the agent may not read {path}"
            raise RuntimeFailedError(FailureCode.RUNTIME_ERROR, text) from error

    async def aclose(self) -> None:
        """As the port says."""
        await self._alone.aclose()
        await self._link.aclose()

    async def _create(self, order: Order) -> Creation:
        name = order.workload_id
        found = await self._call(lambda it: domains.find(it, self.owner, name))
        mark = found.mark if found is not None else None
        if found is not None and mark is None:
            raise RuntimeFailedError(FailureCode.NAME_CONFLICT, _conflict(name))
        if mark is not None and order.is_of(mark.revision_id, mark.spec_hash):
            return Creation.ADOPTED
        host = await self._known_host()
        try:
            build = await asyncio.to_thread(plan_build, order, self.owner, host, self.settings)
        except OSError as error:
            raise storage_failure(error, "cannot look at the machine's files") from error
        if mark is not None:
            await self._retire(build)
        try:
            await build_domain(build, self._link)
        except LibvirtRefusedError as error:
            raise _failure(error) from error
        return Creation.REPLACED if mark is not None else Creation.CREATED

    async def _retire(self, build: Build) -> None:
        """End the older revision; disks that the new one has too stay. Its definition stays as
        well, until the new one takes its place (they have one UUID)."""
        name = build.plan.name
        await self.stop(name, self.settings.replace_grace)
        files = await self._call(lambda connection: self._disks(connection, name))
        await asyncio.to_thread(release_old, files, build)

    async def _remove(self, workload_id: WorkloadId) -> None:
        files = await self._call(lambda connection: self._forget(connection, workload_id))
        await asyncio.to_thread(self._folder(workload_id).clear, workload_id, files)

    def _forget(self, connection: Connection, workload_id: WorkloadId) -> list[str]:
        found = self._ours(connection, workload_id)
        if found is None:
            return []
        domains.end(found.domain)
        return domains.undefine(found.domain)

    def _disks(self, connection: Connection, workload_id: WorkloadId) -> list[str]:
        found = self._ours(connection, workload_id)
        return [] if found is None else domains.disks_of(found.domain)

    def _end(self, connection: Connection, workload_id: WorkloadId) -> None:
        found = self._ours(connection, workload_id)
        if found is not None:
            domains.end(found.domain)

    def _ours(self, connection: Connection, workload_id: WorkloadId) -> domains.Found | None:
        found = domains.find(connection, self.owner, workload_id)
        return found if found is not None and found.mark is not None else None

    async def _stage(self, workload_id: WorkloadId, *, ask: bool = False) -> domains.Stage:
        def work(connection: Connection) -> domains.Stage:
            found = self._ours(connection, workload_id)
            if found is None:
                return domains.Stage(False, False)
            stage = domains.stage_of(found.domain)
            if ask and stage.is_listening:
                domains.ask_to_end(found.domain)
            return stage

        return await self._call(work)

    async def _known_host(self) -> Host:
        """What guests run on; found out once, and again by each probe. KVM is tried once for each
        emulator."""
        if self._host is None:
            host = host_of(await self._call(lambda connection: connection.getCapabilities()))
            self._host = evolve(host, virt_type=await self._virt_type(host))
        return self._host

    async def _virt_type(self, host: Host) -> str:
        match self.settings.accelerator:
            case Accelerator.QEMU:
                return "qemu"
            case Accelerator.KVM:
                return "kvm"
            case Accelerator.AUTO:
                if not host.offers_kvm:
                    return "qemu"
                if host.emulator not in self._kvm:
                    self._kvm[host.emulator] = await kvm_works(host.emulator)
                return "kvm" if self._kvm[host.emulator] else "qemu"

    def _folder(self, workload_id: WorkloadId) -> WorkloadFolder:
        return folder_of(self.settings.state_dir, self.owner, workload_id)

    def _limit_console(self, workload_id: WorkloadId) -> None:
        limit_console(self._folder(workload_id).console, self.settings.console_max_bytes)

    async def _call(self, work: Callable[[Connection], _T]) -> _T:
        try:
            return await self._link.call(work)
        except LibvirtRefusedError as error:
            raise _failure(error) from error


def _conflict(name: WorkloadId) -> str:
    return (
        f"libvirt has a domain {name} that is not this agent's; it is left alone: undefine or"
        f" rename it (virsh undefine {name}), or use another id"
    )


def _failure(error: LibvirtRefusedError) -> RuntimeFailedError:
    is_invalid = error.code in _INVALID_SPEC_CODES
    code = FailureCode.INVALID_SPEC if is_invalid else FailureCode.RUNTIME_ERROR
    return RuntimeFailedError(code, str(error))


def _version(number: int) -> str:
    return f"{number // 1_000_000}.{number // 1000 % 1000}.{number % 1000}"
