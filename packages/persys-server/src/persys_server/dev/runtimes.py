"""What runs the workloads of a demonstration: real containers, or nothing but a model of them.

Decided here: Docker, where its daemon answers and the images can be had; what is said about it; and
what is left out. Nothing of Docker is loaded before it is asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from typing import Protocol, TypeAlias

from attrs import field, frozen

from persys_core.model.errors import PersysError
from persys_proto.control.v1 import control_pb2 as pb
from persys_server.dev.fitting import images_of, kind_of, with_free_ports
from persys_server.dev.verdict import Finding

__all__ = [
    "DEFAULT_ENDPOINT",
    "Daemon",
    "NoRuntimeError",
    "Prepared",
    "RuntimeWish",
    "prepared",
]

DEFAULT_ENDPOINT = "unix:///var/run/docker.sock"
_REAL = ("container", "compose")
_MODELLED = ("vm", "microvm")

Say: TypeAlias = Callable[[str], None]


class RuntimeWish(StrEnum):
    """What the command line asks for."""

    AUTO = "auto"
    DOCKER = "docker"
    SIMULATED = "simulated"


class NoRuntimeError(PersysError):
    """What was asked for cannot be had."""


class Daemon(Protocol):
    """A Docker daemon, as far as a demonstration prepares with it."""

    async def version(self) -> str:
        """Its version. Raises ``PersysError`` where it does not answer."""
        ...

    async def provide(self, image: str, say: Say) -> str:
        """Have an image on the host; why that cannot be, or nothing."""
        ...

    async def clear_away(self) -> int:
        """Remove what demonstrations left that were killed; how many containers."""
        ...


@frozen
class Prepared:
    """What to tell and to run. ``endpoint`` is the daemon, empty where all is simulated; ``text``
    says so to a person. ``left_out`` are findings about what cannot be run here."""

    text: str
    requests: Sequence[pb.ApplyWorkloadRequest]
    endpoint: str = ""
    left_out: tuple[Finding, ...] = field(default=())

    @property
    def needs_model(self) -> bool:
        """Whether something is asked for that Docker does not run."""
        return bool(self.endpoint) and any(kind_of(each) in _MODELLED for each in self.requests)


async def prepared(
    wish: RuntimeWish,
    endpoint: str,
    requests: Sequence[pb.ApplyWorkloadRequest],
    *,
    open_daemon: Callable[[str], Daemon],
    is_free: Callable[[int], bool],
    say: Say,
) -> Prepared:
    """Choose what runs the workloads, and make ready for them; ``say`` hears of it.

    Raises ``NoRuntimeError`` where Docker is asked for and cannot be used.
    """
    if wish is RuntimeWish.SIMULATED:
        return _simulated("as asked for", requests, say)
    daemon = open_daemon(endpoint)
    try:
        version = await daemon.version()
    except PersysError as error:
        if wish is RuntimeWish.DOCKER:
            raise NoRuntimeError(f"--runtime docker: {error}") from error
        return _simulated(str(error), requests, say)
    text = f"Runtime: real containers, on Docker {version} at {endpoint}."
    say(text)
    if count := await daemon.clear_away():
        say(f"Removed {count} containers of a demo that was killed.")
    there, left_out = await _with_images(requests, daemon.provide, say)
    if left_out and not any(kind_of(each) in _REAL for each in there):
        if wish is RuntimeWish.DOCKER:
            raise NoRuntimeError("--runtime docker: none of the images can be had")
        return _simulated("Docker answers, but none of the images can be had", requests, say)
    fitted = [_fitted(each, is_free, say) for each in there]
    made = Prepared(text, fitted, endpoint, tuple(left_out))
    if made.needs_model:
        say("Virtual machines are simulated, on a node of their own.")
    return made


def _simulated(why: str, requests: Sequence[pb.ApplyWorkloadRequest], say: Say) -> Prepared:
    made = Prepared(f"Runtime: simulated, nothing really runs ({why}).", requests)
    say(made.text)
    return made


async def _with_images(
    requests: Sequence[pb.ApplyWorkloadRequest],
    provide: Callable[[str, Say], Awaitable[str]],
    say: Say,
) -> tuple[list[pb.ApplyWorkloadRequest], list[Finding]]:
    """The requests whose images are here now, and a finding for each of the others."""
    images = sorted(frozenset[str]().union(*map(images_of, requests)))
    answers = await asyncio.gather(*(provide(each, say) for each in images))
    missing = {image: why for image, why in zip(images, answers, strict=True) if why}
    for image, why in missing.items():
        names = [each.workload_id for each in requests if image in images_of(each)]
        say(f"Image {image} cannot be had; left out: {', '.join(names)} ({why})")
    there = [each for each in requests if not images_of(each) & missing.keys()]
    return there, [_left_out(each, missing) for each in requests if each not in there]


def _left_out(request: pb.ApplyWorkloadRequest, missing: Mapping[str, str]) -> Finding:
    image = min(images_of(request) & missing.keys())
    return Finding(request.workload_id, True, f"left out: image {image} cannot be had")


def _fitted(
    request: pb.ApplyWorkloadRequest, is_free: Callable[[int], bool], say: Say
) -> pb.ApplyWorkloadRequest:
    fitted, taken = with_free_ports(request, is_free)
    for port in taken:
        say(f"Port {port} is taken here, so {request.workload_id} gets any free one.")
    return fitted
