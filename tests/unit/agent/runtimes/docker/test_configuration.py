"""What of a spec becomes what at the Engine, and which specs are refused before it is asked."""

from __future__ import annotations

import pytest
from attrs import evolve

from persys_agent.runtimes.docker.configuration import KeptVolume, configuration
from persys_agent.runtimes.docker.documents import at, items, text, texts
from persys_agent.runtimes.docker.settings import DockerSettings
from persys_agent.runtimes.port import AttachedVolume, FailureCode, Order, Owner, RuntimeFailedError
from persys_core.model.resources import Resources
from persys_core.model.spec import (
    ComposeSpec,
    ContainerSpec,
    ManagedVolume,
    PortMapping,
    SpecBody,
    VolumeMount,
    WorkloadSpec,
)
from persys_core.model.states import RestartPolicy, WorkloadType

OWNER = Owner("node-1", "cluster-1")
SETTINGS = DockerSettings()
BODY = ContainerSpec("app:1")


def order(body: SpecBody = BODY, metadata: dict[str, str] | None = None) -> Order:
    resources = Resources.of(cpu_millicores=1500, memory_mb=256)
    spec = WorkloadSpec(WorkloadType.CONTAINER, resources, body, metadata or {})
    return Order("w", "rev", "hash", spec)


def test_requests_are_limits() -> None:
    """CPU and memory of the spec bound the container, and memory bounds its swap too."""
    config = configuration(order(), OWNER, SETTINGS)
    assert at(config, "HostConfig", "NanoCpus") == 1_500_000_000
    assert at(config, "HostConfig", "Memory") == 256 * 1024 * 1024
    assert at(config, "HostConfig", "MemorySwap") == 256 * 1024 * 1024


def test_nothing_asked_is_nothing_limited() -> None:
    """A spec without resources gives the Engine's zeros, which mean *no limit*."""
    free = evolve(order(), spec=evolve(order().spec, resources=Resources()))
    config = configuration(free, OWNER, SETTINGS)
    assert at(config, "HostConfig", "NanoCpus") == 0
    assert at(config, "HostConfig", "Memory") == 0


def test_marks_cannot_be_forged() -> None:
    """Labels of the user stay, but for those that say whose it is and those of applications."""
    spec = evolve(
        order().spec,
        metadata={"team": "a", "persys.node_id": "other", "com.docker.compose.project": "p"},
    )
    labels = texts(configuration(evolve(order(), spec=spec), OWNER, SETTINGS), "Labels")
    assert labels == {
        "team": "a",
        "persys.managed": "true",
        "persys.workload_id": "w",
        "persys.revision_id": "rev",
        "persys.spec_hash": "hash",
        "persys.node_id": "node-1",
        "persys.cluster_id": "cluster-1",
        "persys.runtime": "docker",
    }


def test_every_port_is_bound() -> None:
    """Several host ports of one container port are all bound, 0 leaves the choice to the Engine."""
    ports = (PortMapping(8080, 80), PortMapping(0, 80), PortMapping(53, 53, "UDP"))
    config = configuration(order(evolve(BODY, ports=ports)), OWNER, SETTINGS)
    assert at(config, "HostConfig", "PortBindings") == {
        "80/tcp": [
            {"HostIp": "0.0.0.0", "HostPort": "8080"},
            {"HostIp": "0.0.0.0", "HostPort": ""},
        ],
        "53/udp": [{"HostIp": "0.0.0.0", "HostPort": "53"}],
    }
    assert at(config, "ExposedPorts") == {"80/tcp": {}, "53/udp": {}}


@pytest.mark.parametrize("policy", list(RestartPolicy))
def test_restart_policies_are_the_engines(policy: RestartPolicy) -> None:
    """The policy goes to the Engine under its own name."""
    config = configuration(order(evolve(BODY, restart_policy=policy)), OWNER, SETTINGS)
    assert text(config, "HostConfig", "RestartPolicy", "Name") == str(policy)


def test_privileges_need_the_operator() -> None:
    """A privileged container is refused unless the node allows it."""
    wanted = order(evolve(BODY, privileged=True))
    with pytest.raises(RuntimeFailedError, match="privileged"):
        configuration(wanted, OWNER, SETTINGS)
    allowed = configuration(wanted, OWNER, DockerSettings(allow_privileged=True))
    assert at(allowed, "HostConfig", "Privileged") is True


def test_health_checks_come_from_metadata() -> None:
    """Command and times of the check, in the Engine's nanoseconds."""
    config = configuration(
        order(
            BODY,
            {
                "persys.agent.health.command": "true",
                "persys.agent.health.interval": "1.5",
                "persys.agent.health.retries": "4",
            },
        ),
        OWNER,
        SETTINGS,
    )
    assert at(config, "Healthcheck") == {
        "Test": ["CMD-SHELL", "true"],
        "Interval": 1_500_000_000,
        "Retries": 4,
    }
    assert at(configuration(order(), OWNER, SETTINGS), "Healthcheck") is None


def test_volumes_are_mounts() -> None:
    """Host paths, attached volumes and what an older container kept, each once."""
    volume = ManagedVolume("data", mount_path="/data/", read_only=True)
    body = evolve(
        BODY, volumes=(VolumeMount("/srv/x", "/x"),), managed_volumes=(volume,), env={"A": "b=c"}
    )
    wanted = evolve(order(body), volumes=(AttachedVolume(volume, "/mnt/data"),))
    kept = [KeptVolume("v1", "/x"), KeptVolume("v2", "/cache")]
    config = configuration(wanted, OWNER, SETTINGS, kept)
    found = [
        (text(each, "Type"), text(each, "Source"), text(each, "Target"), each.get("ReadOnly"))
        for each in items(config, "HostConfig", "Mounts")
    ]
    assert found == [
        ("bind", "/srv/x", "/x", False),
        ("bind", "/mnt/data", "/data", True),
        ("volume", "v2", "/cache", None),
    ]
    assert at(config, "Env") == ["A=b=c"]


@pytest.mark.parametrize(
    "body",
    [
        ContainerSpec(" "),
        ComposeSpec(inline_yaml="services: {}"),
        ContainerSpec("a", volumes=(VolumeMount("named", "/x"),)),
        ContainerSpec("a", volumes=(VolumeMount("/x", "x"),)),
        ContainerSpec("a", volumes=(VolumeMount("/a", "/x"), VolumeMount("/b", "/x/"))),
        ContainerSpec("a", ports=(PortMapping(1, 0),)),
        ContainerSpec("a", ports=(PortMapping(70000, 80),)),
        ContainerSpec("a", ports=(PortMapping(1, 80, "icmp"),)),
        ContainerSpec("a", env={"A=B": "c"}),
    ],
)
def test_what_makes_no_sense_is_refused(body: SpecBody) -> None:
    """A spec that the Engine could only misunderstand is invalid."""
    with pytest.raises(RuntimeFailedError) as raised:
        configuration(order(body), OWNER, SETTINGS)
    assert raised.value.code is FailureCode.INVALID_SPEC


@pytest.mark.parametrize("value", ["0", "-1", "soon", "nan", "1e9"])
def test_times_are_checked(value: str) -> None:
    """A check's times are numbers that the Engine takes."""
    with pytest.raises(RuntimeFailedError, match="interval"):
        configuration(order(BODY, {"persys.agent.health.interval": value}), OWNER, SETTINGS)


def test_a_volume_that_is_not_attached_is_no_empty_folder() -> None:
    """A managed volume without a folder on this host fails under the volumes' code."""
    volume = ManagedVolume("data", mount_path="/data")
    body = evolve(BODY, managed_volumes=(volume,))
    device = evolve(order(body), volumes=(AttachedVolume(volume, device="rbd:p/n"),))
    for wanted in (order(body), device):
        with pytest.raises(RuntimeFailedError) as raised:
            configuration(wanted, OWNER, SETTINGS)
        assert raised.value.code is FailureCode.VOLUME_FAILED
