"""Who has a host port that a container was to have.

Decided here: how that is told. A port that no container has is another program's, or was let go of
while this was asked; nobody can tell which.
"""

from __future__ import annotations

from persys_agent.runtimes.docker.documents import Document, items, number, texts
from persys_agent.runtimes.docker.engine import Engine
from persys_agent.runtimes.docker.failures import taken_port
from persys_agent.runtimes.docker.labels import CLUSTER, NODE, WORKLOAD
from persys_agent.runtimes.port import FailureCode, Owner, PortTakenError, RuntimeFailedError

__all__ = ["port_taken", "with_holder"]


async def port_taken(engine: Engine, owner: Owner, port: int) -> PortTakenError:
    """The error that names the port and who has it."""
    holder = await _holder(engine, port)
    if holder is None:
        return PortTakenError(_sentence(port, "another program on this host"), None)
    labels = texts(holder, "Labels")
    node = f', node "{labels[NODE]}"' if NODE in labels else ""
    is_ours = (labels.get(NODE), labels.get(CLUSTER, "")) == (owner.node_id, owner.cluster_id)
    return PortTakenError(
        _sentence(port, f'container "{_name(holder)}"{node}'),
        labels.get(WORKLOAD, "") if is_ours else "",
    )


async def with_holder(
    engine: Engine, owner: Owner, error: RuntimeFailedError
) -> RuntimeFailedError:
    """The same error; of a taken port the one that names who has it."""
    port = taken_port(str(error)) if error.code is FailureCode.PORT_CONFLICT else 0
    return await port_taken(engine, owner, port) if port else error


async def _holder(engine: Engine, port: int) -> Document | None:
    for each in await engine.containers({}, running=True):
        if port in {number(bound, "PublicPort") for bound in items(each, "Ports")}:
            return each
    return None


def _sentence(port: int, holder: str) -> str:
    return f"host port {port} is taken by {holder}: choose another port, or 0 for any"


def _name(summary: Document) -> str:
    names = summary.get("Names")
    first = names[0] if isinstance(names, list) and names else ""
    return str(first).removeprefix("/")
