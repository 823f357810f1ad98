"""How a simulated workload behaves: whether its image exists, whether it crashes, how long it runs.

Decided here: what the words in an image's name mean, so that a demo or a test can ask for a
failure by naming it. A container whose command ends in ``exit N`` ends as well, with that code.
A plan may also give single workloads a behaviour of their own, or let a share of all creations
fail. Chance comes in as a generator.

==========  =====================================================================
word        behaviour
==========  =====================================================================
missing     the image is not found
flaky       creation fails with the plan's ``flaky_rate``
crash       exits with code 1 after a while
exit0, job  exits with code 0 after a while
slow        creation takes minutes
nostart     is created and cannot be started
outofcpu    accepted, then fails admission
refuse      the call itself is refused
==========  =====================================================================
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from datetime import timedelta

from attrs import evolve, field, frozen

from persys_core.model.ids import WorkloadId
from persys_core.model.spec import ComposeSpec, ContainerSpec, VmSpec, WorkloadSpec

__all__ = ["Behaviour", "FaultPlan", "image_names"]

_OUT_OF_CPU = "CPU utilization 97.0% exceeds 80%"
_EXIT = re.compile(r"\bexit ([0-9]{1,3})\s*\Z")


@frozen
class Behaviour:
    """What becomes of one apply. Texts are error texts; empty means that the step succeeds.

    ``exit_after``: how long a started workload runs by itself; ``None`` is for ever.
    """

    refusal: str = ""
    admission_error: str = ""
    create_error: str = ""
    start_error: str = ""
    slow: bool = False
    exit_after: timedelta | None = None
    exit_code: int = 0


@frozen
class FaultPlan:
    """Which workloads fail.

    ``failure_rate``: the share of creations that fail without any reason of their own.
    ``run_for``: how long ``crash`` and ``exit0`` workloads run, drawn between the two bounds.
    """

    by_name: bool = True
    workloads: Mapping[WorkloadId, Behaviour] = field(factory=dict)
    failure_rate: float = 0.0
    flaky_rate: float = 0.5
    run_for: tuple[timedelta, timedelta] = (timedelta(seconds=5), timedelta(seconds=30))

    def behaviour(
        self, workload_id: WorkloadId, spec: WorkloadSpec, rng: random.Random
    ) -> Behaviour:
        """How this apply of ``workload_id`` goes. Draws from ``rng`` a fixed number of times."""
        flaky, failing, length = rng.random(), rng.random(), rng.random()
        if own := self.workloads.get(workload_id):
            return own
        named = self._by_name(spec, flaky, length) if self.by_name else Behaviour()
        if failing < self.failure_rate and not named.create_error:
            return evolve(named, create_error="connection reset by peer while pulling image")
        return named

    def _by_name(self, spec: WorkloadSpec, flaky: float, length: float) -> Behaviour:
        images = " ".join(image_names(spec))
        name = images.lower()
        first, last = self.run_for
        fails = "flaky" in name and flaky < self.flaky_rate
        commanded = _commanded_exit(spec)
        ends = commanded is not None or any(word in name for word in ("crash", "exit0", "job"))
        return Behaviour(
            refusal=_OUT_OF_CPU if "refuse" in name else "",
            admission_error=_OUT_OF_CPU if "outofcpu" in name else "",
            create_error=_create_error(images, fails),
            start_error="device or resource busy" if "nostart" in name else "",
            slow="slow" in name,
            exit_after=first + (last - first) * length if ends else None,
            exit_code=1 if "crash" in name else commanded or 0,
        )


def image_names(spec: WorkloadSpec) -> tuple[str, ...]:
    """The images that a spec runs, in order of appearance."""
    match spec.body:
        case ContainerSpec(image=image):
            return (image,)
        case ComposeSpec(inline_yaml=text):
            lines = (line.strip().lstrip("- ") for line in text.splitlines())
            return tuple(line[6:].strip(" \"'") for line in lines if line.startswith("image:"))
        case VmSpec(os_image=image, name=name):
            return (image, name)


def _commanded_exit(spec: WorkloadSpec) -> int | None:
    """The code that the command itself ends with; ``None`` where it says nothing of the kind."""
    if not isinstance(spec.body, ContainerSpec) or not spec.body.command:
        return None
    match = _EXIT.search(spec.body.command[-1])
    return int(match[1]) if match else None


def _create_error(images: str, flaky_fails: bool) -> str:
    if "missing" in images.lower():
        return f"failed to pull image {images}: manifest unknown: image not found"
    return "failed to pull image: read timed out" if flaky_fails else ""
