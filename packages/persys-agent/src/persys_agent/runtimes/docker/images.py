"""How an image comes onto the host: the pull policy, credentials, a bounded time.

Decided here: when to pull (defect 28: an image that is there is used, so a host without a network
works), and under which code a failed pull is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from enum import StrEnum
from typing import assert_never

from persys_agent.runtimes.docker.engine import Engine, EngineError
from persys_agent.runtimes.docker.failures import pull_failure
from persys_agent.runtimes.docker.registry import (
    credentials,
    full_reference,
    read_config,
    registry_of,
)
from persys_agent.runtimes.docker.settings import DockerSettings
from persys_agent.runtimes.port import FailureCode, RuntimeFailedError
from persys_core.model.secrets import scrubbed

__all__ = ["PULL_POLICY", "PullPolicy", "provide_image", "pull_policy"]

PULL_POLICY = "persys.agent.pull_policy"


class PullPolicy(StrEnum):
    """When an image is asked for at its registry."""

    ALWAYS = "always"
    IF_NOT_PRESENT = "if-not-present"
    NEVER = "never"


def pull_policy(metadata: Mapping[str, str]) -> PullPolicy:
    """What the spec's metadata says. Raises ``RuntimeFailedError`` for another word."""
    word = metadata.get(PULL_POLICY, PullPolicy.IF_NOT_PRESENT)
    try:
        return PullPolicy(word)
    except ValueError:
        raise RuntimeFailedError(
            FailureCode.INVALID_SPEC,
            f'{PULL_POLICY} "{word}" is not one of {", ".join(PullPolicy)}',
        ) from None


async def provide_image(
    engine: Engine, settings: DockerSettings, image: str, policy: PullPolicy
) -> None:
    """Have the image on the host. Raises ``RuntimeFailedError``."""
    match policy:
        case PullPolicy.ALWAYS:
            await _pull(engine, settings, image)
        case PullPolicy.IF_NOT_PRESENT:
            if not await _is_present(engine, image):
                await _pull(engine, settings, image)
        case PullPolicy.NEVER:
            if not await _is_present(engine, image):
                raise RuntimeFailedError(
                    FailureCode.IMAGE_NOT_FOUND,
                    f'image "{image}" is not on this host, and {PULL_POLICY} is "never"',
                )
        case _:
            assert_never(policy)


async def _is_present(engine: Engine, image: str) -> bool:
    try:
        return await engine.has_image(image)
    except EngineError as error:
        raise RuntimeFailedError(FailureCode.INVALID_SPEC, f'image "{image}": {error}') from error


async def _pull(engine: Engine, settings: DockerSettings, image: str) -> None:
    auth = await _auth(settings, image)
    reference = full_reference(image) if auth else image
    try:
        async with asyncio.timeout(settings.pull_timeout.total_seconds()):
            await engine.pull(reference, auth)
    except TimeoutError:
        raise RuntimeFailedError(
            FailureCode.IMAGE_PULL_TIMEOUT,
            f'image "{image}" was not pulled within {settings.pull_timeout.total_seconds():g} s',
        ) from None
    except EngineError as error:
        reason = scrubbed(str(error), (auth or {}).values())
        raise RuntimeFailedError(
            pull_failure(error), f'image "{image}" cannot be pulled: {reason}'
        ) from error


async def _auth(settings: DockerSettings, image: str) -> Mapping[str, str] | None:
    if not settings.registry_config:
        return None
    config = await asyncio.to_thread(read_config, settings.registry_config)
    return credentials(config, registry_of(image))
