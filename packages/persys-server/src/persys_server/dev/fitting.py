"""What specifications need of a machine that really runs them. Pure: requests in, requests out.

Decided here: a host port that somebody has already becomes any free one, since a demonstration
takes nothing from anybody.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

import yaml

from persys_proto.control.v1 import control_pb2 as pb

__all__ = ["images_of", "kind_of", "with_free_ports"]

_PAIR = re.compile(r"(\d+):(\d+)(/\w+)?")


def kind_of(request: pb.ApplyWorkloadRequest) -> str:
    """The type of the workload, as manifests write it."""
    return request.spec.type.lower()


def images_of(request: pb.ApplyWorkloadRequest) -> frozenset[str]:
    """The images that are needed to run it; those with variables in their names are not told."""
    if request.spec.HasField("container"):
        return frozenset({request.spec.container.image})
    named = (each.get("image") for each in _services(request.spec.compose.inline_yaml))
    return frozenset(each for each in named if isinstance(each, str) and "$" not in each)


def with_free_ports(
    request: pb.ApplyWorkloadRequest, is_free: Callable[[int], bool]
) -> tuple[pb.ApplyWorkloadRequest, tuple[int, ...]]:
    """The request with free host ports, and the ports that it does not get."""
    fitted = pb.ApplyWorkloadRequest()
    fitted.CopyFrom(request)
    taken = [
        port.host_port
        for port in fitted.spec.container.ports
        if port.host_port and not is_free(port.host_port)
    ]
    for port in fitted.spec.container.ports:
        port.host_port = 0 if port.host_port in taken else port.host_port
    lost = _taken_by_services(request.spec.compose.inline_yaml, is_free)
    if lost:
        fitted.spec.compose.inline_yaml = _without(fitted.spec.compose.inline_yaml, lost)
    return (fitted, (*taken, *lost)) if taken or lost else (request, ())


def _taken_by_services(text: str, is_free: Callable[[int], bool]) -> list[int]:
    pairs = (_PAIR.fullmatch(str(port)) for each in _services(text) for port in _ports(each))
    return [int(pair[1]) for pair in pairs if pair and not is_free(int(pair[1]))]


def _without(text: str, taken: list[int]) -> str:
    content = yaml.safe_load(text)
    for each in content["services"].values():
        if each and _ports(each):
            each["ports"] = [_container_side(port, taken) for port in _ports(each)]
    return str(yaml.safe_dump(content, sort_keys=False))


def _container_side(port: object, taken: list[int]) -> object:
    pair = _PAIR.fullmatch(str(port))
    if pair is None or int(pair[1]) not in taken:
        return port
    return f"{pair[2]}{pair[3] or ''}"


def _services(text: str) -> Iterator[Mapping[str, object]]:
    """Those of a Compose file; none of one that cannot be read, which the agent explains."""
    try:
        content = yaml.safe_load(text) if text else None
    except yaml.YAMLError:
        return
    services = content.get("services") if isinstance(content, dict) else None
    for each in services.values() if isinstance(services, dict) else ():
        if isinstance(each, dict):
            yield each


def _ports(service: Mapping[str, object]) -> list[object]:
    ports = service.get("ports")
    return ports if isinstance(ports, list) else []
