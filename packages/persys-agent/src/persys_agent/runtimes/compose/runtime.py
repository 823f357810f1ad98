"""Compose applications on a Docker Engine, held to the Runtime port.

Decided here: who does what. Compose itself creates, starts and stops, since it knows the order of
services; what there is, what it does and what it uses is asked of the Engine, which also takes it
all away: so a removal works without the files, and whatever they have become. A project is named
after the cluster, the node and the workload; two agents on one host therefore never meet. Named
volumes go with ``with_data`` alone, never with a new revision (defect 31).
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path

from persys_agent.commands import Commands, HostCommands
from persys_agent.runtimes.compose.application import (
    EXEC_LABEL,
    KIND,
    Application,
    application,
    overlay,
    project,
)
from persys_agent.runtimes.compose.cgroups import CgroupTree
from persys_agent.runtimes.compose.command_line import ComposeCommand, bare_environment
from persys_agent.runtimes.compose.folder import Files, ProjectFolder, env_text
from persys_agent.runtimes.compose.guard import Guard
from persys_agent.runtimes.compose.log_merge import merged_lines
from persys_agent.runtimes.compose.remains import PROJECT, Remains, clear, refused
from persys_agent.runtimes.compose.settings import ComposeSettings
from persys_agent.runtimes.compose.states import (
    ServiceContainer,
    application_instance,
    is_active,
    is_up,
    is_up_to_date,
    service_of,
)
from persys_agent.runtimes.compose.sums import Hold, SumLimits, hold_labelled
from persys_agent.runtimes.docker.documents import Document, flag, text, texts
from persys_agent.runtimes.docker.engine import Engine, EngineError
from persys_agent.runtimes.docker.execution import Target, run_inside, target_of
from persys_agent.runtimes.docker.images import provide_image, pull_policy
from persys_agent.runtimes.docker.labels import (
    CLUSTER,
    MANAGED,
    NODE,
    RUNTIME,
    WORKLOAD,
    checked_id,
)
from persys_agent.runtimes.docker.log_lines import LastWordsReader, last_words
from persys_agent.runtimes.docker.ports import with_holder
from persys_agent.runtimes.docker.restarts import RestartWatch
from persys_agent.runtimes.docker.states import instance, secrets
from persys_agent.runtimes.docker.usage import ContainerUse, UsageMeter, total_usage
from persys_agent.runtimes.port import (
    Capability,
    Creation,
    ExecExit,
    ExecOutput,
    FailureCode,
    Instance,
    LogLine,
    Order,
    Owner,
    RuntimeFailedError,
    RuntimeUnavailableError,
)
from persys_agent.settings.parse import PullPolicy
from persys_core.model.ids import WorkloadId, is_valid_id
from persys_core.model.spec import ComposeSpec, secret_values
from persys_core.model.states import WorkloadType
from persys_core.model.usage import WorkloadUsage

__all__ = ["ComposeRuntime"]

_SOURCE = "compose.stats"
_DEFAULTS = ComposeSettings()


class ComposeRuntime:
    """Implements ``Runtime`` and ``Interactive``. ``root`` holds a folder for each project."""

    kind = WorkloadType.COMPOSE

    def __init__(
        self,
        endpoint: str,
        root: Path,
        owner: Owner,
        settings: ComposeSettings = _DEFAULTS,
        commands: Commands | None = None,
    ) -> None:
        self._engine = Engine(endpoint)
        self._root, self._owner, self._settings = root, owner, settings
        programs = commands or HostCommands(bare_environment())
        self._compose = ComposeCommand(programs, settings, endpoint)
        self._sums = SumLimits(self._engine, programs, CgroupTree(settings.cgroups))
        self._guard = Guard(self._engine, settings)
        self._meter = UsageMeter(self._engine, settings.first_sample, settings.concurrent_calls)
        self._words = LastWordsReader(self._engine)
        self._restarts = RestartWatch(self._engine.last_exit, partial(last_words, self._engine))
        self._slots = asyncio.Semaphore(settings.concurrent_calls)

    async def probe(self) -> Capability:
        """Ask the daemon and Compose for their versions."""
        try:
            daemon = await self._engine.version()
            self._compose.forget()
            program = await self._compose.program()
            problem = await self._sums.problem()
        except (RuntimeUnavailableError, EngineError) as error:
            return Capability(False, str(error))
        held = f"; only each service alone is limited, not their sum: {problem}" if problem else ""
        found = f"Compose {program.version}, Docker {text(daemon, 'Version')}{held}"
        return Capability(True, found)

    async def create(self, order: Order) -> Creation:
        """Adopt, replace or make the application of this workload; see the port."""
        name = checked_id(order.workload_id)
        folder = self._folder(name)
        app = await asyncio.to_thread(
            application, order, folder.path, self._settings, self._engine.endpoint
        )
        existing = await self._containers(name)
        env = await self._env(order)
        hold = await self._sums.prepare(project(self._owner, name), order.spec.resources)
        files = Files(app.text, overlay(app, self._owner, order, hold), env)
        before = await asyncio.to_thread(folder.read) if existing else None
        there = Remains(
            await self._engine.volumes({PROJECT: hold.project}),
            await asyncio.to_thread(folder.data),
            before,
        )
        await asyncio.to_thread(folder.write, files)
        if existing and is_up_to_date(existing, order, app.expected):
            await self._guard.check_made(hold.project)  # who made it may not have come to that
            # Where they stand, which need not be where they would stand if they were made now.
            await self._sums.keep(self._hold(name, map(_labels, existing)))
            return Creation.ADOPTED
        try:
            await self._make(order, app, hold)
        except BaseException:
            with suppress(RuntimeUnavailableError):  # what is left is looked at before it starts
                await asyncio.shield(self._undo(name, there))
            raise
        return Creation.REPLACED if existing else Creation.CREATED

    async def _make(self, order: Order, app: Application, hold: Hold) -> None:
        """Have Compose make what it may, with nothing of it started. What it may not be is removed
        at once: somebody else could start it."""
        name, hidden = order.workload_id, secret_values(order.spec)
        await self._check_files(name, hold, hidden)
        policy = pull_policy(order.spec.metadata, self._settings.images.pull_policy)
        if policy is not PullPolicy.MISSING:  # what is missing Compose pulls by itself
            for image in app.images:
                await provide_image(self._engine, self._settings.images, image, policy)
        await self._up(name, ("--no-start",), hidden)
        try:
            await self._guard.check_made(hold.project)
        except RuntimeFailedError:
            for each in await self._guard.containers(hold.project):
                await self._engine.delete(text(each, "Id"))
            raise
        await self._sums.enforce(hold)

    async def _check_files(self, name: WorkloadId, hold: Hold, hidden: frozenset[str]) -> None:
        resolved = await self._call(name, ("config",), self._settings.call_timeout, hidden)
        await self._guard.check_resolved(resolved, self._folder(name).path, hold)

    async def start(self, workload_id: WorkloadId) -> None:
        """Run every service that is not done; nothing happens where all of them run."""
        shown = await self._required(checked_id(workload_id))
        hold = self._hold(workload_id, map(_labels, shown))
        if is_up([await self._alone(workload_id, each) for each in shown]):
            await self._sums.keep(hold)
            return
        await self._guard.check_made(hold.project)
        await self._sums.enforce(hold)
        for each in shown:
            if flag(each, "State", "Paused"):
                await self._engine.unpause(text(each, "Id"))
        is_lone = len(shown) == 1 or not self._folder(workload_id).exists()
        if is_lone and await self._have_started(shown):
            return
        hidden = frozenset().union(*map(secrets, shown))
        await self._check_files(workload_id, hold, hidden)  # they may be of a cut-off creation
        await self._up(workload_id, ("--detach",), hidden)

    async def stop(self, workload_id: WorkloadId, grace: timedelta) -> None:
        """Ask every service to end, in Compose's order, and end them by force after ``grace``."""
        if is_valid_id(workload_id):
            await self._halt(workload_id, await self._containers(workload_id), grace)

    async def remove(self, workload_id: WorkloadId, *, with_data: bool = False) -> None:
        """Remove containers, networks and files; with ``with_data`` the named volumes too."""
        if not is_valid_id(workload_id):
            return
        name = project(self._owner, workload_id)
        containers = await self._containers(workload_id)
        await self._halt(workload_id, containers, self._settings.removal_grace)
        await clear(self._engine, name, () if with_data else None)
        await self._sums.release(name)
        await asyncio.to_thread(self._folder(workload_id).remove, () if with_data else None)

    async def inspect(self, workload_id: WorkloadId) -> Instance | None:
        """The application as the Engine shows its containers now."""
        if not is_valid_id(workload_id):
            return None
        shown = await self._containers(workload_id)
        return await self._instance(workload_id, shown) if shown else None

    async def instances(self) -> Sequence[Instance]:
        """Every application of ours."""
        found: defaultdict[WorkloadId, list[Mapping[str, str]]] = defaultdict(list)
        for each in await self._ours({}):
            found[texts(each, "Labels")[WORKLOAD]].append(texts(each, "Labels"))
        for name, labels in found.items():
            self._sums.keep_trying(self._hold(name, labels))
        listed = await asyncio.gather(*map(self.inspect, sorted(found)))
        return [each for each in listed if each is not None]

    async def usage(self) -> Mapping[WorkloadId, WorkloadUsage]:
        """What the running containers of each application use together."""
        found = await self._ours({}, running=True)
        names = {text(each, "Id"): texts(each, "Labels")[WORKLOAD] for each in found}
        uses: defaultdict[WorkloadId, list[ContainerUse]] = defaultdict(list)
        for container, use in (await self._meter.measure(names)).items():
            uses[names[container]].append(use)
        return {
            name: total_usage(name, self._owner.node_id, self.kind, _SOURCE, together)
            for name, together in uses.items()
        }

    async def logs(
        self, workload_id: WorkloadId, *, tail: int, follow: bool
    ) -> AsyncGenerator[LogLine, None]:
        """The last lines of all services, then with ``follow`` those to come."""
        shown = await self._required(workload_id)
        containers = {text(each, "Id"): service_of(each) for each in shown}
        lines = merged_lines(self._engine, containers, tail, follow=follow)
        async with aclosing(lines):
            async for line in lines:
                yield line

    async def execute(
        self,
        workload_id: WorkloadId,
        command: Sequence[str],
        input: AsyncIterator[bytes],
        *,
        tty: bool = False,
    ) -> AsyncGenerator[ExecOutput | ExecExit, None]:
        """Run a command in the first service, or in the one that the spec names for that."""

        async def find() -> Target:
            shown = await self._required(workload_id)
            chosen = [each for each in shown if _labels(each).get(EXEC_LABEL) == "true"] or shown
            service = service_of(chosen[0])
            return target_of(chosen[0], f'service "{service}" of workload "{workload_id}"')

        running = run_inside(self._engine, find, command, input, tty=tty)
        async with aclosing(running):
            async for item in running:
                yield item

    async def aclose(self) -> None:
        """Close the connections; the applications run on."""
        await self._sums.aclose()
        await self._engine.aclose()

    def _folder(self, workload_id: WorkloadId) -> ProjectFolder:
        return ProjectFolder(self._root, project(self._owner, workload_id))

    def _hold(self, workload_id: WorkloadId, labels: Iterable[Mapping[str, str]]) -> Hold:
        return hold_labelled(project(self._owner, workload_id), *labels)

    async def _env(self, order: Order) -> str:
        assert isinstance(order.spec.body, ComposeSpec)
        program = await self._compose.program()
        return env_text(order.spec.body.env, is_v1=program.is_v1)

    async def _up(
        self, workload_id: WorkloadId, how: Sequence[str], hidden: frozenset[str]
    ) -> None:
        words = ("up", *how, "--remove-orphans")
        await self._call(workload_id, words, self._settings.up_timeout, hidden)

    async def _call(
        self,
        workload_id: WorkloadId,
        words: Sequence[str],
        timeout: timedelta,
        hidden: frozenset[str] = frozenset(),
    ) -> str:
        """Call Compose; where it fails and the daemon is silent, that is what is the matter."""
        folder, name = self._folder(workload_id), project(self._owner, workload_id)
        if not folder.exists():
            raise RuntimeFailedError(
                FailureCode.RUNTIME_ERROR, f"the files of project {name} are gone; apply it anew"
            )
        try:
            return await self._compose.run(folder, name, words, timeout, hidden)
        except RuntimeFailedError as error:
            await self._engine.version()
            raise await with_holder(self._engine, self._owner, error) from error

    async def _halt(
        self, workload_id: WorkloadId, shown: Sequence[Document], grace: timedelta
    ) -> None:
        """Stop what runs: in Compose's order, or without its files all at once. One alone has no
        order."""
        active = [each for each in shown if is_active(each)]
        seconds = math.ceil(grace.total_seconds())
        if not active:
            return
        if len(active) > 1 and self._folder(workload_id).exists():
            words = ("stop", "--timeout", str(seconds))
            try:
                await self._call(workload_id, words, self._settings.call_timeout + grace)
                return
            except RuntimeFailedError:
                pass  # a file that Compose does not take any more must not keep it running
        try:
            await asyncio.gather(*(self._engine.stop(text(each, "Id"), seconds) for each in active))
        except EngineError as error:
            raise refused("stopped", error) from error

    async def _have_started(self, shown: Sequence[Document]) -> bool:
        """Start containers without their order: one alone has none, and without files nobody
        knows it. Where that fails, Compose may know what is missing, and how to tell it."""
        try:
            for each in shown:
                await self._engine.start(text(each, "Id"))
        except EngineError:
            return False
        return True

    async def _undo(self, workload_id: WorkloadId, there: Remains) -> None:
        """After a failed creation: the old files, or nothing at all where there was nothing."""
        folder, name = self._folder(workload_id), project(self._owner, workload_id)
        if there.files is not None:
            await asyncio.to_thread(folder.write, there.files)
        else:
            await clear(self._engine, name, there.volumes)
            await self._sums.release(name)
            await asyncio.to_thread(folder.remove, there.data)

    async def _ours(self, marks: Mapping[str, str], *, running: bool = False) -> Sequence[Document]:
        wanted = {MANAGED: "true", NODE: self._owner.node_id, RUNTIME: KIND, **marks}
        found = await self._engine.containers(wanted, running=running)
        return [
            each
            for each in found
            if texts(each, "Labels").get(CLUSTER, "") == self._owner.cluster_id
        ]

    async def _containers(self, workload_id: WorkloadId) -> Sequence[Document]:
        """Every container of the application, in the order of its services."""
        found = await self._ours({WORKLOAD: workload_id})
        shown = await asyncio.gather(*(self._shown(text(each, "Id")) for each in found))
        there = [each for each in shown if each is not None]
        return sorted(there, key=lambda each: (service_of(each), text(each, "Name")))

    async def _shown(self, container_id: str) -> Document | None:
        async with self._slots:
            return await self._engine.show(container_id)

    async def _required(self, workload_id: WorkloadId) -> Sequence[Document]:
        shown = await self._containers(workload_id) if is_valid_id(workload_id) else ()
        if not shown:
            raise RuntimeFailedError(
                FailureCode.RUNTIME_ERROR,
                f'there is no application of workload "{workload_id}" here',
            )
        return shown

    async def _instance(self, workload_id: WorkloadId, shown: Sequence[Document]) -> Instance:
        containers = [await self._alone(workload_id, each) for each in shown]
        return application_instance(workload_id, project(self._owner, workload_id), containers)

    async def _alone(self, workload_id: WorkloadId, shown: Document) -> ServiceContainer:
        words = await self._words.of(shown)
        restarts = await self._restarts.remark(shown, words)
        return ServiceContainer(service_of(shown), instance(workload_id, shown, words, restarts))


def _labels(shown: Document) -> Mapping[str, str]:
    return texts(shown, "Config", "Labels")
