"""Ports and volumes in the text form of the reference: ``host:container/protocol``, ``h:c:ro``."""

from __future__ import annotations

from persys_core.model.spec import PortMapping, VolumeMount

__all__ = ["port_from", "port_text", "volume_from", "volume_text"]

_MODES = ("ro", "rw")


def port_text(port: PortMapping) -> str:
    """``host:container/protocol``."""
    return f"{port.host_port}:{port.container_port}/{port.protocol}"


def port_from(text: str) -> PortMapping:
    """The mapping that ``text`` names; without a host port the agent chooses one.

    Raises ValueError where a port is no number.
    """
    numbers, _, protocol = text.partition("/")
    *before, container = numbers.split(":")
    host = before[-1] if before else ""
    return PortMapping(int(host or 0), int(container), protocol or "tcp")


def volume_text(volume: VolumeMount) -> str:
    """``host:container``, with ``:ro`` where it is read only."""
    text = f"{volume.host_path}:{volume.container_path}"
    return f"{text}:ro" if volume.read_only else text


def volume_from(text: str) -> VolumeMount:
    """The mount that ``text`` names; a single path is one of the container alone."""
    parts = text.split(":")
    read_only = len(parts) > 1 and parts[-1] == "ro"
    if len(parts) > 2 and parts[-1] in _MODES:
        parts.pop()
    host, container = (parts[0], ":".join(parts[1:])) if len(parts) > 1 else ("", parts[0])
    return VolumeMount(host, container, read_only)
