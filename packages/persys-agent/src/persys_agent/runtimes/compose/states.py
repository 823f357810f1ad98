"""The containers of an application, as one ``Instance``.

Decided here: the state of the whole. A service that ended with 0 is done, not missing; one that
ended otherwise makes the application Failed, with its code and last line. Where containers are of
several revisions (an update was cut off) there is no revision, so the next order mends it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import frozen

from persys_agent.runtimes.docker.documents import Document, text, texts
from persys_agent.runtimes.docker.labels import REVISION, SPEC_HASH
from persys_agent.runtimes.port import Instance, Order
from persys_core.model.ids import WorkloadId
from persys_core.model.observation import AgentState
from persys_core.model.remarks import Remark, remark_of

__all__ = [
    "SERVICE",
    "ServiceContainer",
    "application_instance",
    "is_active",
    "is_up",
    "is_up_to_date",
    "service_of",
]

SERVICE = "com.docker.compose.service"


@frozen
class ServiceContainer:
    """One container of an application, as it is alone."""

    service: str
    alone: Instance


def service_of(shown: Document) -> str:
    """The service that a container is of."""
    return texts(shown, "Config", "Labels").get(SERVICE, "")


def is_active(shown: Document) -> bool:
    """Whether a container would have to be stopped."""
    return text(shown, "State", "Status") in {"running", "restarting", "paused"}


def is_up(containers: Sequence[ServiceContainer]) -> bool:
    """Whether everything runs that is not done."""
    return _state(containers)[0] is AgentState.RUNNING


def is_up_to_date(shown: Sequence[Document], order: Order, expected: frozenset[str]) -> bool:
    """Whether every container is of this order, and every service that is expected has one."""
    wanted = (order.revision_id, order.spec_hash)
    labels = [texts(each, "Config", "Labels") for each in shown]
    found = {(each.get(REVISION), each.get(SPEC_HASH)) for each in labels}
    return found == {wanted} and expected <= set(map(service_of, shown))


def application_instance(
    workload_id: WorkloadId, project: str, containers: Sequence[ServiceContainer]
) -> Instance:
    """The application of these containers; there is at least one."""
    alone = [each.alone for each in containers]
    state, message = _state(containers)
    code = _exit_code(state, containers)
    ended = [each.finished_at for each in alone if each.finished_at]
    ports = {port for each in alone for port in each.ports}
    return Instance(
        workload_id=workload_id,
        revision_id=_shared({each.revision_id for each in alone}),
        spec_hash=_shared({each.spec_hash for each in alone}),
        state=state,
        message=message,
        exit_code=code,
        started_at=min((each.started_at for each in alone if each.started_at), default=None),
        finished_at=None if code is None else max(ended, default=None),
        restarts=sum(each.restarts for each in alone),
        ports=tuple(sorted(ports, key=lambda port: (port.container_port, port.host_port))),
        metadata={
            "compose.project": project,
            "compose.services": ", ".join(map(_told, containers)),
            "container.restart_count": str(sum(each.restarts for each in alone)),
        }
        | _port_metadata(alone)
        | _end_metadata(code, containers),
    )


def _state(containers: Sequence[ServiceContainer]) -> tuple[AgentState, str]:
    states = [each.alone.state for each in containers]
    done = sum(1 for each in containers if _is_done(each))
    running, wanted = states.count(AgentState.RUNNING), len(containers) - done
    if failed := _failed(containers):
        return AgentState.FAILED, f"service {failed.service}: {failed.alone.message}"
    count = f"{running}/{wanted or len(containers)} containers running"
    if done and running:
        count += f", {done} done"
    if not running and AgentState.PENDING not in states:
        return AgentState.STOPPED, count
    state = AgentState.PENDING if running < wanted else AgentState.RUNNING
    return state, "; ".join([count, *_remarks(containers)])


def _remarks(containers: Sequence[ServiceContainer]) -> Iterator[str]:
    """Which services were started again lately, in their own words, and which are unhealthy."""
    for each in containers:
        if remark_of(each.alone.message) is Remark.RESTARTING:
            yield f"{each.service} {each.alone.message}"
    sick = [each.service for each in containers if _is_unhealthy(each)]
    if sick:
        yield f"unhealthy: {', '.join(sick)}"


def _is_unhealthy(each: ServiceContainer) -> bool:
    return each.alone.metadata.get("container.health") == Remark.UNHEALTHY


def _is_done(each: ServiceContainer) -> bool:
    return each.alone.state is AgentState.STOPPED and each.alone.exit_code == 0


def _failed(containers: Sequence[ServiceContainer]) -> ServiceContainer | None:
    return next((each for each in containers if each.alone.state is AgentState.FAILED), None)


def _exit_code(state: AgentState, containers: Sequence[ServiceContainer]) -> int | None:
    failed = _failed(containers)
    if failed is not None:
        return failed.alone.exit_code
    return 0 if state is AgentState.STOPPED and all(map(_is_done, containers)) else None


def _shared(values: set[str]) -> str:
    return values.pop() if len(values) == 1 else ""


def _told(each: ServiceContainer) -> str:
    state = each.alone.metadata.get("container.state", "")
    code = each.alone.exit_code
    return f"{each.service}={state}" if code is None else f"{each.service}={state}({code})"


def _port_metadata(alone: Sequence[Instance]) -> dict[str, str]:
    told = [
        each.metadata["container.ports"] for each in alone if "container.ports" in each.metadata
    ]
    return {"container.ports": ", ".join(told)} if told else {}


def _end_metadata(code: int | None, containers: Sequence[ServiceContainer]) -> dict[str, str]:
    """What readers of a single container look at, from the service that failed."""
    if code is None:
        return {}
    failed = _failed(containers)
    words = failed.alone.metadata.get("container.stderr", "") if failed else ""
    return {"container.exit_code": str(code)} | ({"container.stderr": words} if words else {})
