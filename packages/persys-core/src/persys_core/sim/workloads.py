"""What simulated users ask for: specs of every kind, and the machines to run them on.

Decided here: the mixture. Most workloads are small, sound containers; the others fail, end, start
slowly, are too large, are tied to a node, or ask for what only some nodes have.
"""

from __future__ import annotations

import random

from attrs import evolve

from persys_core.model.node import StoragePool
from persys_core.model.resources import Resources
from persys_core.model.spec import (
    ComposeSpec,
    ContainerSpec,
    DiskSpec,
    ManagedVolume,
    SpecBody,
    VmSpec,
    WorkloadSpec,
)
from persys_core.model.states import RestartPolicy, WorkloadType
from persys_core.sim.agent_settings import (
    Admission,
    AgentSettings,
    Latency,
    existing_agent,
    our_agent,
)

__all__ = ["IMAGES", "machine", "new_image", "new_spec", "relabelled", "resized"]

IMAGES = (
    ("web", 60),
    ("job", 8),
    ("flaky", 8),
    ("crash", 5),
    ("missing", 3),
    ("slow", 4),
    ("nostart", 2),
    ("outofcpu", 2),
    ("refuse", 2),
)
"""Image names, which say how they behave (``agent_behaviour``), with their weights."""
_APPS = ("shop", "blog", "mail", "wiki")
_ZONES = ("north", "south", "east")


def machine(node_id: str, rng: random.Random) -> AgentSettings:
    """A machine of some size, with an agent of the field's or of ours."""
    settings = (existing_agent if rng.random() < 0.5 else our_agent)(node_id)
    size = rng.choice((4, 8, 8, 16))
    slow = rng.random() < 0.1
    return evolve(
        settings,
        endpoint=f"{node_id}:50051",
        cpu_millicores=size * 1000,
        memory_mb=size * 2048,
        storage_pools=(StoragePool("root", "local", 50 * size),),
        labels={"zone": rng.choice(_ZONES), "disk": rng.choice(("ssd", "hdd"))},
        storage_drivers=frozenset({"local", "nfs"} if rng.random() < 0.7 else {"local"}),
        admission=Admission.CAPACITY if rng.random() < 0.3 else Admission.NONE,
        queue_depth=rng.choice((2, 20, 20)),
        create=Latency.of(2, 10) if slow else settings.create,
    )


def new_spec(rng: random.Random) -> WorkloadSpec:
    """A spec that no user asked for before, mostly."""
    kind = rng.choices(
        (WorkloadType.CONTAINER, WorkloadType.COMPOSE, WorkloadType.VM), weights=(75, 15, 10)
    )[0]
    return WorkloadSpec(kind, _resources(rng), _body(kind, rng), _metadata(rng))


def new_image(spec: WorkloadSpec, rng: random.Random) -> WorkloadSpec:
    """The same workload with another image, sound or not."""
    return evolve(spec, body=_with_image(spec.body, _image(rng)))


def resized(spec: WorkloadSpec, rng: random.Random) -> WorkloadSpec:
    """The same workload with other resources."""
    return evolve(spec, resources=_resources(rng))


def relabelled(spec: WorkloadSpec, rng: random.Random) -> WorkloadSpec:
    """The same workload with other labels and wishes."""
    return evolve(spec, metadata=_metadata(rng))


def _image(rng: random.Random) -> str:
    names, weights = zip(*IMAGES, strict=True)
    return f"{rng.choices(names, weights=weights)[0]}:{rng.randrange(20)}"


def _resources(rng: random.Random) -> Resources:
    dice = rng.random()
    if dice < 0.08:
        return Resources()
    if dice < 0.12:
        return Resources.of(cpu_millicores=20_000, memory_mb=1024)
    cpu = rng.choice((100, 250, 500, 1000, 2000, 3000))
    return Resources.of(cpu_millicores=cpu, memory_mb=rng.choice((64, 256, 1024, 2048)))


def _body(kind: WorkloadType, rng: random.Random) -> SpecBody:
    image = _image(rng)
    match kind:
        case WorkloadType.CONTAINER:
            return ContainerSpec(
                image,
                env={"TOKEN": f"t-{rng.randrange(1000)}"},
                restart_policy=rng.choice(tuple(RestartPolicy)),
                managed_volumes=_volumes(rng),
            )
        case WorkloadType.COMPOSE:
            text = f"services:\n  app:\n    image: {image}\n  db:\n    image: db\n"
            return ComposeSpec(inline_yaml=text)
        case WorkloadType.VM | WorkloadType.MICROVM:
            disks = (DiskSpec(size_gb=rng.choice((5, 20)), pool_name=rng.choice(("", "local"))),)
            return VmSpec(rng.choice((1, 2)), rng.choice((512, 1024)), disks, os_image=image)


def _volumes(rng: random.Random) -> tuple[ManagedVolume, ...]:
    if rng.random() < 0.8:
        return ()
    driver = rng.choice(("local", "local", "nfs"))
    # Few names on the server, so that workloads meet at one volume now and then.
    names = 1000 if driver == "local" else 12
    return (
        ManagedVolume(
            f"data-{rng.randrange(names)}",
            driver=driver,
            access_mode=rng.choice(("", "ReadWriteOnce", "ReadWriteMany")),
            size_gb=rng.choice((1, 5)),
            retain_policy=rng.choice(("Delete", "Retain")),
        ),
    )


def _metadata(rng: random.Random) -> dict[str, str]:
    app = rng.choice(_APPS)
    wishes = {"app": app, "build": str(rng.randrange(100))}
    dice = rng.random()
    if dice < 0.08:
        wishes["persys.scheduling.node_selector.zone"] = rng.choice(_ZONES)
    elif dice < 0.14:
        wishes["persys.scheduling.anti_affinity"] = f"app={app}"
    elif dice < 0.18:
        wishes["persys.scheduling.strategy"] = "binpack"
    elif dice < 0.22:
        wishes["persys.scheduling.exclude_nodes"] = f"n{rng.randrange(20)}"
    elif dice < 0.26:
        wishes["persys.scheduling.spread_by"] = "zone"
    elif dice < 0.30:
        wishes["persys.scheduling.tolerations"] = "dedicated=db:NoSchedule"
    if rng.random() < 0.1:
        wishes["persys.scheduling.priority"] = str(rng.randrange(10))
    return wishes


def _with_image(body: SpecBody, image: str) -> SpecBody:
    match body:
        case ContainerSpec():
            return evolve(body, image=image)
        case ComposeSpec():
            return evolve(body, inline_yaml=f"services:\n  app:\n    image: {image}\n")
        case VmSpec():
            return evolve(body, os_image=image)
