"""What a user asks for: the specification of a workload, and its canonical revision.

A spec is content: two equal specs have equal revisions whatever order or defaults they were
written with (field report A02). Identity (id, uid, desired state) stands in ``workload.py``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from attrs import asdict, field, frozen

from persys_core.model.ids import RevisionId
from persys_core.model.mappings import text_map
from persys_core.model.resources import Resources
from persys_core.model.secrets import (
    MASK,
    masked,
    masked_command,
    secret_command_values,
    secret_env_values,
)
from persys_core.model.states import RestartPolicy, WorkloadType

__all__ = [
    "CloudInit",
    "ComposeSpec",
    "ContainerSpec",
    "DiskSpec",
    "ManagedVolume",
    "NetworkSpec",
    "PortMapping",
    "SpecBody",
    "VmSpec",
    "VolumeMount",
    "WorkloadSpec",
    "secret_values",
    "spec_revision",
]

_REVISION_HEX_DIGITS = 24


def _masked_repr(env: Mapping[str, str]) -> str:
    return repr(masked(env))


def _command_repr(words: tuple[str, ...]) -> str:
    return repr(masked_command(words))


def _hidden_repr(text: str) -> str:
    return repr(MASK if text else "")


@frozen
class VolumeMount:
    """A host path that the container sees."""

    host_path: str
    container_path: str
    read_only: bool = False


@frozen
class PortMapping:
    """A container port on the host; ``host_port`` 0 lets the agent choose one."""

    host_port: int
    container_port: int
    protocol: str = "tcp"


@frozen
class ManagedVolume:
    """A volume that Persys provisions with the workload (driver ``local``, ``nfs``, ``ceph-rbd``).

    ``retain_policy`` is ``Delete`` or ``Retain``; sizes in GB.
    """

    name: str
    driver: str = "local"
    size_gb: int = 0
    access_mode: str = ""
    fs_type: str = ""
    mount_path: str = ""
    read_only: bool = False
    retain_policy: str = "Delete"


@frozen
class ContainerSpec:
    """One container."""

    image: str
    command: tuple[str, ...] = field(default=(), repr=_command_repr)
    env: Mapping[str, str] = field(factory=dict, converter=text_map, repr=_masked_repr)
    volumes: tuple[VolumeMount, ...] = ()
    ports: tuple[PortMapping, ...] = ()
    restart_policy: RestartPolicy = RestartPolicy.NO
    privileged: bool = False
    managed_volumes: tuple[ManagedVolume, ...] = ()


@frozen
class ComposeSpec:
    """A Compose application: inline YAML, or a git repository that holds one.

    Exactly one of ``inline_yaml`` and ``git_repo`` is set.
    """

    inline_yaml: str = field(default="", repr=_hidden_repr)
    git_repo: str = field(default="", repr=_hidden_repr)
    git_ref: str = ""
    env: Mapping[str, str] = field(factory=dict, converter=text_map, repr=_masked_repr)


@frozen
class DiskSpec:
    """One disk of a virtual machine; the agent's fields joined with the control contract's."""

    size_gb: int = 0
    pool_name: str = ""
    mount_point: str = ""
    path: str = ""
    device: str = ""
    format: str = ""
    type: str = "disk"
    boot: bool = False
    backing_file: str = ""
    storage: str = ""


@frozen
class NetworkSpec:
    """One network interface of a virtual machine."""

    bridge: str = ""
    dhcp: bool = False
    static_ip: str = ""
    network: str = ""
    mac_address: str = ""
    host_dev_name: str = ""
    model: str = ""


@frozen
class CloudInit:
    """First-boot data of a virtual machine; everything in it may hold secrets."""

    user_data: str = field(default="", repr=_hidden_repr)
    meta_data: str = field(default="", repr=_hidden_repr)
    network_config: str = ""
    vendor_data: str = field(default="", repr=_hidden_repr)
    username: str = ""
    ssh_public_key: str = ""
    password: str = field(default="", repr=_hidden_repr)


@frozen
class VmSpec:
    """A virtual machine or microVM; memory in MB, disks in GB."""

    vcpus: int
    memory_mb: int
    disks: tuple[DiskSpec, ...] = ()
    networks: tuple[NetworkSpec, ...] = ()
    cloud_init: CloudInit = CloudInit()
    cloud_init_text: str = field(default="", repr=_hidden_repr)
    os_image: str = ""
    disk_gb: int = 0
    runtime: str = ""
    name: str = ""
    metadata: Mapping[str, str] = field(factory=dict, converter=text_map)
    managed_volumes: tuple[ManagedVolume, ...] = ()


SpecBody: TypeAlias = ContainerSpec | ComposeSpec | VmSpec


@frozen
class WorkloadSpec:
    """Everything that a change of which makes a new revision.

    ``resources`` is what placement charges and what the agent enforces. ``metadata`` carries the
    user's labels and the ``persys.scheduling.*`` keys (see ``model.constraints``).
    """

    type: WorkloadType
    resources: Resources
    body: SpecBody
    metadata: Mapping[str, str] = field(factory=dict, converter=text_map, repr=_masked_repr)

    @property
    def managed_volumes(self) -> tuple[ManagedVolume, ...]:
        """The managed volumes of a container or a machine; a Compose application has none."""
        match self.body:
            case ContainerSpec() | VmSpec():
                return self.body.managed_volumes
            case ComposeSpec():
                return ()

    @property
    def restart_policy(self) -> RestartPolicy | None:
        """The runtime's restart policy; ``None`` for kinds that have none."""
        return self.body.restart_policy if isinstance(self.body, ContainerSpec) else None


def spec_revision(spec: WorkloadSpec) -> RevisionId:
    """The canonical revision of ``spec``: 24 hex digits over every field of it.

    Keys are sorted and defaults are filled in, so the same wish always has the same revision,
    and a change of any single field has another one.
    """
    canonical = json.dumps(asdict(spec), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:_REVISION_HEX_DIGITS]


def secret_values(spec: WorkloadSpec) -> frozenset[str]:
    """Every value in ``spec`` that no text about it may contain (field report A04)."""
    return frozenset().union(
        secret_env_values(spec.metadata), _body_secrets(spec.body), *_credentials(spec.body)
    )


def _body_secrets(body: SpecBody) -> frozenset[str]:
    match body:
        case ContainerSpec():
            return secret_env_values(body.env) | secret_command_values(body.command)
        case ComposeSpec():
            return secret_env_values(body.env)
        case VmSpec():
            return secret_env_values(body.metadata)


def _credentials(body: SpecBody) -> Iterable[frozenset[str]]:
    match body:
        case ComposeSpec():
            yield secret_env_values({"git_repo": body.git_repo})
        case VmSpec() if body.cloud_init.password:
            yield secret_env_values({"password": body.cloud_init.password})
        case _:
            return
