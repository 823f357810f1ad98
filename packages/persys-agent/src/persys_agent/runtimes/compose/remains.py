"""What there is of a project, and how it is cleared away.

Decided here: all that bears the project's label goes, files or no files. Volumes and what is in the
project's folder go only where somebody says what of them is to stay.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from attrs import frozen

from persys_agent.runtimes.compose.folder import Files
from persys_agent.runtimes.docker.documents import text
from persys_agent.runtimes.docker.engine import Engine, EngineError
from persys_agent.runtimes.port import FailureCode, RuntimeFailedError

__all__ = ["PROJECT", "Remains", "clear", "refused"]

PROJECT = "com.docker.compose.project"


@frozen
class Remains:
    """What there was of a project before a creation: volumes, data in its folder, and files
    (``None`` where no container was there)."""

    volumes: Sequence[str]
    data: frozenset[str]
    files: Files | None


async def clear(engine: Engine, project: str, keep: Collection[str] | None) -> None:
    """Remove all that is the project's; of its volumes those not to ``keep`` (``None``: none).
    Raises ``RuntimeFailedError``, or as the Engine does where it is silent."""
    mark = {PROJECT: project}
    try:
        for each in await engine.containers(mark):
            await engine.delete(text(each, "Id"), with_volumes=keep is not None)
        for network in await engine.networks(mark):
            await engine.delete_network(network)
        if keep is not None:
            for volume in set(await engine.volumes(mark)) - set(keep):
                await engine.delete_volume(volume)
    except EngineError as error:
        raise refused("removed", error) from error


def refused(what: str, error: EngineError) -> RuntimeFailedError:
    """What the Engine would not do."""
    return RuntimeFailedError(FailureCode.RUNTIME_ERROR, f"cannot be {what}: {error}")
