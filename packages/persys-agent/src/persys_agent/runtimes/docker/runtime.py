"""Containers on a Docker Engine, held to the Runtime port.

Decided here: what is adopted, replaced and refused, and which calls make that so. What a container
is called is ``names``'s decision; one of ours that goes by the other style's name, of a time when
the setting was another, is ours as it is until it is replaced. What the reference agent left behind
cannot be marked afterwards (the Engine changes no labels), so it is taken over by the workload that
asks for it and is listed from then on; nothing is listed that nobody of ours asked for.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from datetime import timedelta
from functools import partial

from persys_agent.runtimes.docker.configuration import (
    KIND,
    configuration,
    container_body,
    kept_volumes,
)
from persys_agent.runtimes.docker.documents import Document, flag, text, texts
from persys_agent.runtimes.docker.engine import NOT_FOUND, Engine, EngineError
from persys_agent.runtimes.docker.execution import Target, run_inside, target_of
from persys_agent.runtimes.docker.failures import create_failure, start_failure
from persys_agent.runtimes.docker.images import provide_image, pull_policy
from persys_agent.runtimes.docker.labels import (
    MANAGED,
    NODE,
    REVISION,
    RUNTIME,
    SPEC_HASH,
    WORKLOAD,
    Ownership,
    checked_id,
    ownership,
    refusal,
)
from persys_agent.runtimes.docker.log_lines import LastWordsReader, container_lines, last_words
from persys_agent.runtimes.docker.names import container_name
from persys_agent.runtimes.docker.ports import with_holder
from persys_agent.runtimes.docker.restarts import RestartWatch
from persys_agent.runtimes.docker.settings import DockerSettings
from persys_agent.runtimes.docker.states import instance, secrets
from persys_agent.runtimes.docker.usage import UsageMeter, total_usage
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
from persys_agent.settings.parse import ContainerNames
from persys_core.model.ids import WorkloadId, is_valid_id
from persys_core.model.secrets import scrubbed
from persys_core.model.spec import secret_values
from persys_core.model.states import WorkloadType
from persys_core.model.usage import WorkloadUsage

__all__ = ["DockerRuntime"]

_SOURCE = "docker.stats"
_TRIES = 10
_TRY_SECONDS = 0.2
_DEFAULTS = DockerSettings()
_LIMITS = {"CpuCfsQuota": "CPU", "MemoryLimit": "memory", "SwapLimit": "swap"}


class _NameTakenError(Exception):
    """The Engine has the name by now, although it had not when it was asked."""


class DockerRuntime:
    """Implements ``Runtime`` and ``Interactive``. ``endpoint``: ``unix:///…`` or ``tcp://…``."""

    kind = WorkloadType.CONTAINER

    def __init__(self, endpoint: str, owner: Owner, settings: DockerSettings = _DEFAULTS) -> None:
        self._engine = Engine(endpoint, settings.call_timeout)
        self._owner = owner
        self._settings = settings
        self._slots = asyncio.Semaphore(settings.concurrent_calls)
        self._meter = UsageMeter(self._engine, settings.first_sample, settings.concurrent_calls)
        self._adopted: set[WorkloadId] = set()
        self._words = LastWordsReader(self._engine)
        self._restarts = RestartWatch(self._engine.last_exit, partial(last_words, self._engine))

    async def probe(self) -> Capability:
        """Ask the daemon for its version, and for what it cannot limit."""
        try:
            found, info = await self._engine.version(), await self._engine.info()
        except (RuntimeUnavailableError, EngineError) as error:
            return Capability(False, f"{error}; is dockerd running, and may the agent open it?")
        lacking = [what for name, what in _LIMITS.items() if not flag(info, name)]
        unlimited = f"; this host cannot limit {' and '.join(lacking)}" if lacking else ""
        return Capability(
            True, f"Docker {text(found, 'Version')}, API {text(found, 'ApiVersion')}{unlimited}"
        )

    async def create(self, order: Order) -> Creation:
        """Adopt, replace or make the container of this workload; see the port."""
        checked_id(order.workload_id)
        hidden = secret_values(order.spec)
        with _scrubbing(hidden):
            for _ in range(_TRIES):
                try:
                    return await self._created(order)
                except _NameTakenError:
                    # By a call that was cut off and that the Engine still carries out, mostly.
                    await asyncio.sleep(_TRY_SECONDS)
            shown = await self._engine.named(self._name(order.workload_id))
            raise self._refusal(order.workload_id, shown or {})

    async def start(self, workload_id: WorkloadId) -> None:
        """Run it; what was paused goes on."""
        shown = await self._shown(checked_id(workload_id))
        if shown is None:
            raise _absent(workload_id)
        if not self._is_ours(shown, workload_id):
            raise self._refusal(workload_id, shown)
        try:
            if flag(shown, "State", "Paused"):
                await self._engine.unpause(text(shown, "Id"))
            else:
                await self._engine.start(text(shown, "Id"))
        except EngineError as error:
            raise await self._start_error(shown, error) from error

    async def stop(self, workload_id: WorkloadId, grace: timedelta) -> None:
        """Ask it to end, and end it by force after ``grace``."""
        shown = await self._ours(workload_id)
        if shown is not None:
            async with _refusals("stopped", missing_is_fine=True):
                await self._engine.stop(text(shown, "Id"), math.ceil(grace.total_seconds()))

    async def remove(self, workload_id: WorkloadId, *, with_data: bool = False) -> None:
        """Remove the container; with ``with_data`` the volumes too that the Engine made for it."""
        shown = await self._ours(workload_id)
        if shown is not None:
            async with _refusals("removed"):
                await self._engine.delete(text(shown, "Id"), with_volumes=with_data)
                for each in kept_volumes(shown) if with_data else ():
                    await self._engine.delete_volume(each.name)
        self._adopted.discard(workload_id)

    async def inspect(self, workload_id: WorkloadId) -> Instance | None:
        """The container as the Engine shows it now."""
        shown = await self._ours(workload_id)
        return None if shown is None else await self._instance(workload_id, shown)

    async def instances(self) -> Sequence[Instance]:
        """Every container of ours."""
        found = await self._engine.containers(self._marks())
        names = {texts(each, "Labels").get(WORKLOAD, "") for each in found} | self._adopted
        shown = await asyncio.gather(*map(self._inspected, sorted(names)))
        return [each for each in shown if each is not None]

    async def usage(self) -> Mapping[WorkloadId, WorkloadUsage]:
        """What the running containers use; CPU over the time since the last call."""
        found = await self._engine.containers(self._marks(), running=True)
        names = {text(each, "Id"): texts(each, "Labels").get(WORKLOAD, "") for each in found}
        measured = await self._meter.measure(names)
        return {
            names[container]: total_usage(
                names[container], self._owner.node_id, self.kind, _SOURCE, [use]
            )
            for container, use in measured.items()
        }

    async def logs(
        self, workload_id: WorkloadId, *, tail: int, follow: bool
    ) -> AsyncGenerator[LogLine, None]:
        """Its last lines, then with ``follow`` those to come until it ends."""
        container = await self._required(workload_id)
        lines = container_lines(self._engine, container, tail, follow=follow)
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
        """Run a command inside; closing the iterator ends it."""

        async def find() -> Target:
            shown = await self._ours(workload_id)
            if shown is None:
                raise _absent(workload_id)
            return target_of(shown, f'workload "{workload_id}"')

        within = self._settings.exec_starts_within
        running = run_inside(self._engine, find, command, input, tty=tty, starts_within=within)
        async with aclosing(running):
            async for item in running:
                yield item

    async def aclose(self) -> None:
        """Close the connections; the containers run on."""
        await self._engine.aclose()

    def _marks(self) -> Mapping[str, str]:
        return {MANAGED: "true", NODE: self._owner.node_id, RUNTIME: KIND}

    def _is_ours(self, shown: Document, workload_id: WorkloadId) -> bool:
        match self._whose(shown, workload_id):
            case Ownership.OURS:
                return True
            case Ownership.UNMARKED:
                self._adopted.add(workload_id)
                return True
            case Ownership.FOREIGN:
                return False

    def _name(self, workload_id: WorkloadId) -> str:
        return container_name(self._settings.names, self._owner.node_id, workload_id)

    def _refusal(self, workload_id: WorkloadId, shown: Document) -> RuntimeFailedError:
        return refusal(self._name(workload_id), _labels(shown), text(shown, "Id"))

    async def _shown(self, workload_id: WorkloadId) -> Document | None:
        """What has the name of this workload's container, whoever made it, unless one of ours for
        this workload goes by a name of another style."""
        names = {
            style: container_name(style, self._owner.node_id, workload_id)
            for style in ContainerNames
        }
        shown = await self._engine.named(names.pop(self._settings.names))
        if shown is not None and self._is_ours(shown, workload_id):
            return shown
        for name in names.values():
            other = await self._engine.named(name)
            if other is not None and self._whose(other, workload_id) is Ownership.OURS:
                return other
        return shown

    def _whose(self, shown: Document, workload_id: WorkloadId) -> Ownership:
        return ownership(_labels(shown), self._owner, workload_id, KIND)

    def _is_up_to_date(self, shown: Document, order: Order) -> bool:
        """Whether there is nothing to change. Raises where the name is somebody else's."""
        labels = _labels(shown)
        if not self._is_ours(shown, order.workload_id):
            raise self._refusal(order.workload_id, shown)
        is_marked = NODE in labels
        revision, spec_hash = labels.get(REVISION, ""), labels.get(SPEC_HASH, "")
        if is_marked:
            return order.is_of(revision, spec_hash)
        return revision in {"", order.revision_id}

    async def _ours(self, workload_id: WorkloadId) -> Document | None:
        """The container of this workload, if it is ours; an id that none can have has none."""
        if not is_valid_id(workload_id):
            return None
        shown = await self._shown(workload_id)
        return shown if shown is not None and self._is_ours(shown, workload_id) else None

    async def _required(self, workload_id: WorkloadId) -> str:
        """The id of the container of ours. Raises ``RuntimeFailedError`` without one."""
        shown = await self._ours(workload_id)
        if shown is None:
            raise _absent(workload_id)
        return text(shown, "Id")

    async def _inspected(self, workload_id: WorkloadId) -> Instance | None:
        async with self._slots:
            return await self.inspect(workload_id)

    async def _instance(self, workload_id: WorkloadId, shown: Document) -> Instance:
        words = await self._words.of(shown)
        return instance(workload_id, shown, words, await self._restarts.remark(shown, words))

    async def _created(self, order: Order) -> Creation:
        policy = pull_policy(order.spec.metadata, self._settings.pull_policy)
        configuration(order, self._owner, self._settings)  # refused before anything changes
        existing = await self._shown(order.workload_id)
        if existing is not None and self._is_up_to_date(existing, order):
            return Creation.ADOPTED
        image = container_body(order).image
        await provide_image(self._engine, self._settings, image, policy)
        if existing is not None:
            await self._retire(existing)
        await self._make(order, existing or {})
        return Creation.CREATED if existing is None else Creation.REPLACED

    async def _retire(self, shown: Document) -> None:
        """End and remove an outdated container; its volumes stay, for the one that follows."""
        container = text(shown, "Id")
        grace = math.ceil(self._settings.replace_grace.total_seconds())
        async with _refusals("replaced", missing_is_fine=True):
            await self._engine.stop(container, grace)
        async with _refusals("replaced"):
            await self._engine.delete(container)

    async def _make(self, order: Order, replaced: Document) -> None:
        config = configuration(order, self._owner, self._settings, kept_volumes(replaced))
        try:
            await self._engine.create(self._name(order.workload_id), config)
        except EngineError as error:
            code = create_failure(error)
            if code is FailureCode.NAME_CONFLICT:
                raise _NameTakenError from error
            raise RuntimeFailedError(code, f"cannot be created: {error}") from error

    async def _start_error(self, shown: Document, error: EngineError) -> RuntimeFailedError:
        message = scrubbed(str(error), secrets(shown))
        failed = RuntimeFailedError(start_failure(error), f"cannot be started: {message}")
        return await with_holder(self._engine, self._owner, failed)


def _labels(shown: Document) -> Mapping[str, str]:
    return texts(shown, "Config", "Labels")


def _absent(workload_id: WorkloadId) -> RuntimeFailedError:
    return RuntimeFailedError(
        FailureCode.RUNTIME_ERROR, f'there is no container of workload "{workload_id}" here'
    )


@contextmanager
def _scrubbing(hidden: Iterable[str]) -> Iterator[None]:
    """Keep these secrets out of the texts of failures."""
    try:
        yield
    except RuntimeFailedError as error:
        raise RuntimeFailedError(error.code, scrubbed(str(error), hidden)) from None


@asynccontextmanager
async def _refusals(what: str, *, missing_is_fine: bool = False) -> AsyncIterator[None]:
    """Refusals of the Engine within the block as failures of the runtime."""
    try:
        yield
    except EngineError as error:
        if missing_is_fine and error.status == NOT_FOUND:
            return
        raise RuntimeFailedError(FailureCode.RUNTIME_ERROR, f"cannot be {what}: {error}") from error
