"""Texts turned into values: ports, addresses, choices, labels, and what all programs read alike.

Decided here: which spellings the agent accepts beside those of ``persys_core.settings.texts``. A
parser raises ``ValueError`` whose text says what is accepted and never quotes the given value,
which may be a secret. Defaults and the meaning of each setting stand in ``table``.
"""

from __future__ import annotations

from contextlib import suppress
from enum import StrEnum

from persys_core.model.ids import is_valid_id
from persys_core.settings.texts import (
    LogFormat,
    Span,
    choice,
    flag,
    log_level,
    parse_duration,
    path,
    text,
    whole,
    whole_number,
)

__all__ = [
    "Accelerator",
    "CallerCheck",
    "ContainerNames",
    "LogFormat",
    "PullPolicy",
    "Span",
    "VaultMethod",
    "address",
    "choice",
    "docker_endpoint",
    "flag",
    "host",
    "labels",
    "log_level",
    "names",
    "node_id",
    "optional_address",
    "parse_duration",
    "path",
    "port",
    "pull_policy",
    "text",
    "whole",
]


class Accelerator(StrEnum):
    """What runs the processors of virtual machines; ``auto`` is kvm after a probe that it works."""

    AUTO = "auto"
    KVM = "kvm"
    QEMU = "qemu"


class CallerCheck(StrEnum):
    """What becomes of a caller whose certificate names nobody who may call."""

    ENFORCE = "enforce"
    WARN = "warn"


class PullPolicy(StrEnum):
    """When an image is pulled; ``missing``: where it is not on the host yet."""

    ALWAYS = "always"
    MISSING = "missing"
    NEVER = "never"


class ContainerNames(StrEnum):
    """What a container is called: as its workload, or ``<node>.<workload>``."""

    WORKLOAD = "workload"
    NODE = "node"


class VaultMethod(StrEnum):
    """How the agent logs in to Vault."""

    APPROLE = "approle"
    TOKEN = "token"


def port(given: str) -> int:
    """A TCP port; 0 has the system choose a free one."""
    return whole_number(given, 0, 65535, "a port from 1 to 65535, or 0 for any that is free")


def host(given: str) -> str:
    """A host's name or address, without a port; IPv6 may stand in brackets."""
    bare = given.removeprefix("[").removesuffix("]")
    if not bare or any(sign in bare for sign in "/ []@"):
        raise ValueError("a host name or an IP address, without a port")
    return bare


def address(given: str) -> str:
    """``host:port``."""
    name, _, digits = given.rpartition(":")
    is_port = digits.isascii() and digits.isdigit() and 1 <= int(digits[:6]) <= 65535
    if not name or not is_port or any(sign in name for sign in "/ @"):
        raise ValueError("host:port, such as 10.0.0.5:8085")
    return given


def optional_address(given: str) -> str:
    """``host:port`` that may be left empty."""
    return address(given) if given else ""


def docker_endpoint(given: str) -> str:
    """Where the Docker Engine listens: what its clients and Compose both understand."""
    scheme, _, rest = given.partition("://")
    with suppress(ValueError):
        if scheme == "unix" and rest.startswith("/") and rest != "/":
            return path(given)
        if scheme == "tcp":
            return f"tcp://{address(rest.removesuffix('/'))}"
    raise ValueError(
        "unix:///path/of/the/socket or tcp://host:port (forward a daemon that is reached by ssh or"
        " TLS to a socket)"
    )


def node_id(given: str) -> str:
    """The id of a node; empty for ``auto``, which has the agent find one."""
    if given in ("", "auto"):
        return ""
    if not is_valid_id(given):
        raise ValueError(
            "auto, or 1 to 253 letters, digits, '.', '_' and '-', beginning with a letter or digit"
        )
    return given


def labels(given: str) -> tuple[tuple[str, str], ...]:
    """``k=v,k2=v2``; as the agents in the field, what is no whole pair is left out."""
    pairs = (item.partition("=") for item in given.split(","))
    stripped = ((key.strip(), value.strip()) for key, _, value in pairs)
    return tuple(dict(pair for pair in stripped if all(pair)).items())


def names(given: str) -> tuple[str, ...]:
    """Words of a comma list, each once."""
    return tuple(dict.fromkeys(word for part in given.split(",") if (word := part.strip())))


def pull_policy(given: str) -> PullPolicy:
    """A word of ``PullPolicy``; ``IfNotPresent`` is another word for ``missing``. ValueError."""
    if given.lower().replace("-", "") == "ifnotpresent":
        return PullPolicy.MISSING
    return choice(PullPolicy)(given)
