"""The one list of settings: keys, defaults, meaning, variables, and which are secret.

Decided here: everything about one setting. A setting ``key`` is read from the file's key of that
name, from ``PERSYS_<KEY>`` in the environment, and from its ``also`` names there. ``later`` says
honestly that this release reads and checks a setting but does nothing with it yet. What several
settings demand of each other stands in ``checks``.

Size: one row per setting; a second file would hide half of the list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from enum import StrEnum
from functools import cache
from typing import Any

import attrs
from attrs import field, frozen

from persys_agent.settings import parse
from persys_agent.settings.parse import (
    Accelerator,
    CallerCheck,
    ContainerNames,
    LogFormat,
    PullPolicy,
    VaultMethod,
)
from persys_core.model.secrets import MASK

__all__ = ["DEFAULT_COMPOSE", "Group", "NodeSettings", "Setting", "settings_table"]

DEFAULT_COMPOSE = "docker compose"

_KEY = "persys.setting"
_VAULT = "certificates from Vault"
_TRACES = "traces of the agent"


class Group(StrEnum):
    """Under which heading a setting is documented."""

    LISTEN = "Listening"
    IDENTITY = "The node and its scheduler"
    TLS = "TLS"
    RUNTIMES = "Runtimes"
    HOST = "What the host keeps"
    STORAGE = "Storage drivers"
    WORK = "State and work"
    OBSERVABILITY = "Logs and traces"
    VAULT = "Vault"


@frozen
class Setting:
    """One setting. ``default`` is the text that would be written for it, empty for none; ``{data}``
    and ``{libvirt}`` in it depend on the user (``places``)."""

    key: str
    parse: Callable[[str], Any]
    default: str
    doc: str
    group: Group
    also: tuple[str, ...] = ()
    secret: bool = False
    later: str = ""

    @property
    def variables(self) -> tuple[str, ...]:
        """The names in the environment, in the order in which they are read."""
        return (f"PERSYS_{self.key.upper()}", *self.also)


def _mask(value: object) -> str:
    return repr(MASK if value else "")


def _row(
    group: Group,
    parse: Callable[[str], Any],
    default: str,
    doc: str,
    *,
    also: tuple[str, ...] = (),
    later: str = "",
) -> Any:
    row = Setting("", parse, default, doc, group, also, later=later)
    return field(metadata={_KEY: row})


def _secret(group: Group, doc: str, *, later: str = "") -> Any:
    row = Setting("", parse.text, "", doc, group, secret=True, later=later)
    return field(metadata={_KEY: row}, repr=_mask)


@frozen(kw_only=True)
class NodeSettings:
    """Every setting, parsed. Durations are ``timedelta``; secrets are masked in ``repr``.

    ``config_file`` is the file that was read, empty for none.
    """

    config_file: str = ""

    grpc_addr: str = _row(
        Group.LISTEN, parse.host, "0.0.0.0", "Address that the agent's gRPC server listens on."
    )
    grpc_port: int = _row(
        Group.LISTEN, parse.port, "50051", "Port of the agent's gRPC server; 0 is any that is free."
    )
    metrics_addr: str = _row(
        Group.LISTEN,
        parse.host,
        "127.0.0.1",
        "Address of /metrics and /health; 0.0.0.0 lets other machines ask, on every address.",
    )
    metrics_port: int = _row(
        Group.LISTEN,
        parse.port,
        "8089",
        "Port of /metrics and /health (plain HTTP); 0 is any that is free.",
    )
    agent_grpc_endpoint: str = _row(
        Group.LISTEN,
        parse.optional_address,
        "",
        "What the scheduler is told to call, host:port; empty is found out (docs/agent.md).",
    )

    node_id: str = _row(
        Group.IDENTITY,
        parse.node_id,
        "auto",
        "Id of this node. auto is the host name with the beginning of /etc/machine-id, else with"
        " a hash of the network card's address, else alone.",
    )
    cluster_id: str = _row(
        Group.IDENTITY,
        parse.text,
        "",
        "The cluster that work here belongs to; marked on every container, domain and project.",
    )
    node_region: str = _row(Group.IDENTITY, parse.text, "", "Value of the label `region`.")
    node_env: str = _row(Group.IDENTITY, parse.text, "", "Value of the label `env`.")
    node_labels: tuple[tuple[str, str], ...] = _row(
        Group.IDENTITY,
        parse.labels,
        "",
        "Labels of this node: k=v,k2=v2, or a mapping in the file. `os` and `arch` are added.",
    )
    version: str = _row(
        Group.IDENTITY,
        parse.text,
        "",
        "Version that the scheduler is told; empty is this release's.",
    )
    scheduler_addr: str = _row(
        Group.IDENTITY, parse.address, "127.0.0.1:8085", "Where the scheduler listens, host:port."
    )
    scheduler_insecure: bool = _row(
        Group.IDENTITY, parse.flag, "false", "Call the scheduler without TLS."
    )
    standalone: bool = _row(
        Group.IDENTITY, parse.flag, "false", "No registration and no heartbeats."
    )

    tls_enabled: bool = _row(
        Group.TLS, parse.flag, "true", "Serve with TLS, and ask callers for a certificate."
    )
    tls_cert_path: str = _row(
        Group.TLS,
        parse.path,
        "/etc/persys/certs/agent/compute-agent.pem",
        "Certificate of this agent (PEM). Read again when it changes, as the key and the CA.",
        also=("PERSYS_TLS_CERT",),
    )
    tls_key_path: str = _row(
        Group.TLS,
        parse.path,
        "/etc/persys/certs/agent/compute-agent-key.pem",
        "Private key of that certificate (PEM).",
        also=("PERSYS_TLS_KEY",),
    )
    tls_ca_path: str = _row(
        Group.TLS,
        parse.path,
        "/etc/persys/certs/agent/ca.pem",
        "Certificates of the authorities that peers are checked against (PEM).",
        also=("PERSYS_TLS_CA",),
    )
    tls_server_name: str = _row(
        Group.TLS,
        parse.text,
        "",
        "Name that the scheduler's certificate has to be for; empty is the host of scheduler_addr.",
    )
    tls_scheduler_names: tuple[str, ...] = _row(
        Group.TLS,
        parse.names,
        "persys-scheduler",
        "Names in certificates (common or alternative name) that may do everything; comma list.",
    )
    tls_operator_names: tuple[str, ...] = _row(
        Group.TLS,
        parse.names,
        "persysctl,persys-gateway",
        "Names that may look, read output and run commands in workloads; comma list.",
    )
    tls_authz: CallerCheck = _row(
        Group.TLS,
        parse.choice(CallerCheck),
        "enforce",
        "enforce refuses callers of other names; warn only logs them, for a migration.",
    )

    docker_enabled: bool = _row(
        Group.RUNTIMES, parse.flag, "true", "Run containers, where Docker answers."
    )
    docker_endpoint: str = _row(
        Group.RUNTIMES,
        parse.docker_endpoint,
        "unix:///var/run/docker.sock",
        "Where the Docker Engine listens: unix:///path or tcp://host:port.",
        also=("DOCKER_HOST",),
    )
    docker_config: str = _row(
        Group.RUNTIMES,
        parse.path,
        "",
        "Docker's config.json with logins of registries; empty is none.",
    )
    image_pull_policy: PullPolicy = _row(
        Group.RUNTIMES,
        parse.pull_policy,
        "missing",
        "When images are pulled: missing (not here yet; also IfNotPresent), always or never.",
    )
    image_pull_timeout: timedelta = _row(
        Group.RUNTIMES, parse.Span("1s"), "10m", "How long the pull of one image may take."
    )
    allow_privileged: bool = _row(
        Group.RUNTIMES,
        parse.flag,
        "false",
        "Let workloads ask for privileged containers and the like.",
    )
    container_names: ContainerNames = _row(
        Group.RUNTIMES,
        parse.choice(ContainerNames),
        "workload",
        "What containers are called: workload is the workload's id; node is <node>.<workload>, for"
        " several agents on one Docker daemon.",
    )
    compose_enabled: bool = _row(
        Group.RUNTIMES, parse.flag, "true", "Run Compose applications, where the binary works."
    )
    compose_binary: str = _row(
        Group.RUNTIMES,
        parse.text,
        DEFAULT_COMPOSE,
        "The command of Docker Compose, in words; docker-compose also stands in for the default.",
    )
    compose_root: str = _row(
        Group.RUNTIMES,
        parse.path,
        "{data}/compose",
        "Folder with one folder for each Compose application.",
    )
    vm_enabled: bool = _row(
        Group.RUNTIMES, parse.flag, "true", "Run virtual machines, where libvirt answers."
    )
    libvirt_uri: str = _row(Group.RUNTIMES, parse.text, "{libvirt}", "Which libvirt is asked.")
    vm_images_root: str = _row(
        Group.RUNTIMES,
        parse.path,
        "{data}/images",
        "Images and kernels that specs of VMs and microVMs name; QEMU's user reads them.",
    )
    vm_accelerator: Accelerator = _row(
        Group.RUNTIMES,
        parse.choice(Accelerator),
        "auto",
        "kvm, qemu (slow, runs anywhere) or auto: kvm where a probe shows that it works.",
    )
    firecracker_enabled: bool = _row(
        Group.RUNTIMES,
        parse.flag,
        "true",
        "Run microVMs, where Firecracker, its kernel and KVM are there.",
    )
    firecracker_binary: str = _row(
        Group.RUNTIMES, parse.path, "firecracker", "The command of Firecracker, or its path."
    )
    firecracker_kernel: str = _row(
        Group.RUNTIMES,
        parse.text,
        "vmlinux",
        "Kernel in vm_images_root that microVMs boot (uncompressed ELF).",
    )
    firecracker_root: str = _row(
        Group.RUNTIMES, parse.path, "{data}/microvm", "Folder of the microVMs' disks and sockets."
    )

    host_reserve_cpu_millicores: int = _row(
        Group.HOST,
        parse.whole(0, 10**7),
        "100",
        "Millicores kept for the host: workloads get what is left.",
    )
    host_reserve_memory_mb: int = _row(
        Group.HOST, parse.whole(0, 10**9), "256", "Memory kept for the host, in MiB."
    )
    host_reserve_disk_gb: int = _row(
        Group.HOST, parse.whole(0, 10**7), "1", "Disk kept for the host, in GiB."
    )

    storage_local_root: str = _row(
        Group.STORAGE, parse.path, "{data}/volumes/local", "Folder of the volumes of driver local."
    )
    storage_local_size_gb: int = _row(
        Group.STORAGE,
        parse.whole(0, 10**7),
        "0",
        "What the volumes of driver local may have together, in GiB; 0 is the file system's size.",
    )
    storage_nfs_stage_dir: str = _row(
        Group.STORAGE,
        parse.path,
        "{data}/volumes/nfs",
        "Folder where exports are mounted for workloads.",
    )
    storage_nfs_server: str = _row(
        Group.STORAGE, parse.text, "", "NFS server, name or address; empty is no nfs."
    )
    storage_nfs_export: str = _row(Group.STORAGE, parse.path, "", "Path that the server exports.")
    storage_nfs_options: str = _row(
        Group.STORAGE, parse.text, "", "Mount options, comma list, such as vers=4.2,hard."
    )
    storage_ceph_stage_dir: str = _row(
        Group.STORAGE,
        parse.path,
        "{data}/volumes/ceph-rbd",
        "Folder where images are mounted for workloads.",
    )
    storage_ceph_cluster: str = _row(
        Group.STORAGE, parse.text, "", "Name of the Ceph cluster; empty is ceph."
    )
    storage_ceph_pool: str = _row(
        Group.STORAGE, parse.text, "", "Pool of the images; empty is no ceph-rbd."
    )
    storage_ceph_user: str = _row(
        Group.STORAGE, parse.text, "", "Ceph user without `client.`; empty is admin."
    )
    storage_ceph_keyring: str = _row(
        Group.STORAGE, parse.path, "", "Keyring file of that user; empty is Ceph's own search."
    )
    storage_command_timeout: timedelta = _row(
        Group.STORAGE,
        parse.Span("1s"),
        "60s",
        "How long one command of a storage driver (mount, rbd, mkfs …) may take.",
    )

    agent_data_dir: str = _row(
        Group.WORK,
        parse.path,
        "{data}",
        "Folder that the other folders stand in where they are not set.",
    )
    state_store_path: str = _row(
        Group.WORK,
        parse.path,
        "{data}/state.db",
        "Database of this agent's workloads and tasks (SQLite).",
        also=("PERSYS_STATE_PATH",),
    )
    task_history: int = _row(
        Group.WORK, parse.whole(0, 10**6), "1000", "How many finished tasks are remembered."
    )
    task_workers: int = _row(
        Group.WORK, parse.whole(1, 1000), "10", "How many workloads are worked on at once."
    )
    reconcile_enabled: bool = _row(
        Group.WORK,
        parse.flag,
        "true",
        "Keep workloads as they should be, without being told again.",
    )
    reconcile_interval: timedelta = _row(
        Group.WORK,
        parse.Span("100ms"),
        "30s",
        "How often the runtimes are compared with what should run.",
    )
    stop_grace: timedelta = _row(
        Group.WORK,
        parse.Span("0s"),
        "30s",
        "How long a workload may take to end before it is ended by force.",
    )
    stop_after: timedelta = _row(
        Group.WORK,
        parse.Span("1s", or_never=True),
        "0",
        "Stop exclusive work after the scheduler was not reached for so long; 0 is never.",
    )

    log_level: str = _row(
        Group.OBSERVABILITY, parse.log_level, "info", "debug, info, warning, error or critical."
    )
    log_format: LogFormat = _row(
        Group.OBSERVABILITY, parse.choice(LogFormat), "text", "text or json."
    )
    otlp_endpoint: str = _row(
        Group.OBSERVABILITY,
        parse.text,
        "",
        "Collector that traces are sent to; empty is nowhere.",
        also=("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_JAEGER_ENDPOINT"),
        later=_TRACES,
    )
    otel_service_name: str = _row(
        Group.OBSERVABILITY,
        parse.text,
        "compute-agent",
        "Name of this service in traces.",
        also=("OTEL_SERVICE_NAME",),
        later=_TRACES,
    )

    vault_enabled: bool = _row(
        Group.VAULT,
        parse.flag,
        "false",
        "Have certificates issued by Vault or OpenBao.",
        later=_VAULT,
    )
    vault_addr: str = _row(
        Group.VAULT, parse.text, "http://localhost:8200", "Address of Vault.", later=_VAULT
    )
    vault_auth_method: VaultMethod = _row(
        Group.VAULT, parse.choice(VaultMethod), "approle", "approle or token.", later=_VAULT
    )
    vault_token: str = _secret(Group.VAULT, "Token for the method token.", later=_VAULT)
    vault_manager_addr: str = _row(
        Group.VAULT,
        parse.text,
        "vault-manager:50069",
        "Service that hands out AppRole credentials.",
        later=_VAULT,
    )
    vault_approle_role_id: str = _row(
        Group.VAULT, parse.text, "", "Role id for the method approle.", later=_VAULT
    )
    vault_approle_secret_id: str = _secret(
        Group.VAULT, "Secret id for the method approle.", later=_VAULT
    )
    vault_pki_mount: str = _row(
        Group.VAULT, parse.text, "pki", "Where the PKI engine is mounted.", later=_VAULT
    )
    vault_pki_role: str = _row(
        Group.VAULT,
        parse.text,
        "compute-agent",
        "PKI role that the certificate is issued by.",
        later=_VAULT,
    )
    vault_cert_ttl: timedelta = _row(
        Group.VAULT, parse.Span("1s"), "24h", "Lifetime to ask for.", later=_VAULT
    )
    vault_retry_interval: timedelta = _row(
        Group.VAULT, parse.Span("1s"), "2m", "How long to wait after Vault failed.", later=_VAULT
    )
    vault_service_name: str = _row(
        Group.VAULT, parse.text, "", "Common name of the certificate.", later=_VAULT
    )
    vault_service_domain: str = _row(
        Group.VAULT, parse.text, "", "Domain of further names of the certificate.", later=_VAULT
    )


@cache
def settings_table() -> Mapping[str, Setting]:
    """The settings by their key, in the order of the table."""
    return {
        each.name: attrs.evolve(each.metadata[_KEY], key=each.name)
        for each in attrs.fields(NodeSettings)
        if _KEY in each.metadata
    }
