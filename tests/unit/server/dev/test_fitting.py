"""What specifications need of a machine that really runs them."""

from __future__ import annotations

import yaml

from persys_proto.control.v1 import control_pb2 as pb
from persys_server.dev.examples import requests_in
from persys_server.dev.fitting import images_of, with_free_ports

APPLICATION = """\
services:
  front: {image: "nginx:1", ports: ["8081:80", "9000:90/udp", "7"]}
  back: {image: "redis:7"}
  built: {build: .}
  variable: {image: "${IMAGE}"}
"""


def application(text: str) -> pb.ApplyWorkloadRequest:
    compose = pb.ComposeSpec(source_type="inline", inline_yaml=text)
    return pb.ApplyWorkloadRequest(
        workload_id="shop", spec=pb.WorkloadSpec(type="compose", compose=compose)
    )


def container(*ports: int) -> pb.ApplyWorkloadRequest:
    found = [pb.Port(host_port=each, container_port=80) for each in ports]
    return pb.ApplyWorkloadRequest(
        workload_id="web",
        spec=pb.WorkloadSpec(
            type="container", container=pb.ContainerSpec(image="nginx:1", ports=found)
        ),
    )


def test_the_images_of_the_examples_are_known() -> None:
    """Those of containers and of the services of applications; machines have none."""
    images = {each.workload_id: images_of(each) for each in requests_in(None)}
    assert images["web"] == {"nginx:1.27-alpine"}
    assert images["shop"] == {"nginx:1.27-alpine", "redis:7-alpine"}
    assert images["vm"] == frozenset()


def test_images_that_only_compose_can_tell_are_not_told() -> None:
    """Variables and builds; a file that is no Compose file has none, and the agent explains it."""
    assert images_of(application(APPLICATION)) == {"nginx:1", "redis:7"}
    for text in ("services: [", "[]", "services: []", "services: {a: 1}"):
        assert images_of(application(text)) == frozenset()


def test_free_ports_are_left_as_they_are() -> None:
    """The request itself is handed on."""
    for request in (container(80, 0), application(APPLICATION)):
        fitted, taken = with_free_ports(request, lambda port: True)
        assert fitted is request
        assert taken == ()


def test_a_taken_port_of_a_container_becomes_any() -> None:
    """Only that one, and not in the request that was given."""
    request = container(80, 443)
    fitted, taken = with_free_ports(request, lambda port: port != 80)
    assert [each.host_port for each in fitted.spec.container.ports] == [0, 443]
    assert taken == (80,)
    assert request.spec.container.ports[0].host_port == 80


def test_a_taken_port_of_a_service_becomes_any() -> None:
    """The container's side is kept, with its protocol."""
    fitted, taken = with_free_ports(application(APPLICATION), lambda port: port == 7)
    services = yaml.safe_load(fitted.spec.compose.inline_yaml)["services"]
    assert services["front"]["ports"] == ["80", "90/udp", "7"]
    assert services["back"] == {"image": "redis:7"}
    assert taken == (8081, 9000)
