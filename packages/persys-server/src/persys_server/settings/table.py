"""The one list of environment variables: names, defaults, meaning, and which are secret.

Decided here: everything about one variable. ``later`` says honestly that this release reads and
checks a variable but does nothing with it yet. What several variables demand of each other stands
in ``checks``.

Size: one row per variable; a second file would hide half of the list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from enum import StrEnum
from functools import cache
from typing import Any

import attrs
from attrs import frozen

from persys_core.model.drift import OrphanPolicy
from persys_core.model.replica import HaMode
from persys_core.model.secrets import MASK, is_secret_name
from persys_server.settings import otlp, parse
from persys_server.settings.otlp import OtlpEndpoint, OtlpProtocol, Sampler
from persys_server.settings.parse import (
    AuthzMode,
    LogFormat,
    StoreTarget,
    VaultMethod,
)

__all__ = ["Group", "Settings", "Variable", "variables"]

_KEY = "persys.variable"
_TLS = "mutual TLS"
_VAULT = "certificates from Vault"
_RGW = "buckets in Ceph RGW"
_DNS = "service discovery by CoreDNS"
_NO_PLAIN_WORD = 12


class Group(StrEnum):
    """Under which heading a variable is documented."""

    LISTEN = "Listening"
    STORE = "State store"
    HA = "Replicas and leadership"
    LOOPS = "Nodes and reconciliation"
    AGENTS = "Calls to agents"
    OBSERVABILITY = "Logs, metrics and traces"
    TLS = "TLS and authorisation"
    VAULT = "Vault"
    REDIS = "Redis"
    DNS = "Service discovery"
    RGW = "Object storage"


@frozen
class Variable:
    """One variable. ``default`` is the text that would be written for it, empty for none.

    ``fallbacks`` are read where it is not set. ``later`` names what will use it, if nothing does.
    """

    name: str
    parse: Callable[[str], Any]
    default: str
    doc: str
    group: Group
    secret: bool = False
    later: str = ""
    fallbacks: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The variable and its fallbacks, in the order in which they are read."""
        return (self.name, *self.fallbacks)


def _mask(value: object) -> str:
    return repr(MASK if value else "")


def _row(
    group: Group,
    name: str,
    parse: Callable[[str], Any],
    default: str,
    doc: str,
    *,
    fallbacks: tuple[str, ...] = (),
) -> Any:
    row = Variable(name, parse, default, doc, group, fallbacks=fallbacks)
    return attrs.field(metadata={_KEY: row})


def _later(
    group: Group,
    name: str,
    parse: Callable[[str], Any],
    default: str,
    doc: str,
    *,
    by: str,
    fallbacks: tuple[str, ...] = (),
) -> Any:
    row = Variable(name, parse, default, doc, group, later=by, fallbacks=fallbacks)
    return attrs.field(metadata={_KEY: row})


def _secret(
    group: Group, name: str, doc: str, *, by: str = "", fallbacks: tuple[str, ...] = ()
) -> Any:
    row = Variable(name, parse.text, "", doc, group, secret=True, later=by, fallbacks=fallbacks)
    return attrs.field(metadata={_KEY: row}, repr=_mask)


@frozen(kw_only=True)
class Settings:
    """Every setting, parsed. Durations are ``timedelta``; secrets are masked in ``repr``."""

    grpc_addr: str = _row(
        Group.LISTEN,
        "PERSYS_GRPC_ADDR",
        parse.text,
        "0.0.0.0",
        "Address that the gRPC and the HTTP server listen on.",
    )
    grpc_port: int = _row(Group.LISTEN, "GRPC_PORT", parse.port, "8085", "Port of the gRPC API.")
    metrics_port: int = _row(
        Group.LISTEN,
        "METRICS_PORT",
        parse.port,
        "8084",
        "Port of /health, /readyz and /metrics (plain HTTP).",
    )
    advertise_ip: str = _row(
        Group.LISTEN,
        "SCHEDULER_ADVERTISE_IP",
        parse.host,
        "",
        "Address or host name that clients are told for this replica; empty is PERSYS_GRPC_ADDR,"
        " and the name of the machine where that is every address.",
    )
    advertise_port: int | None = _row(
        Group.LISTEN,
        "SCHEDULER_ADVERTISE_PORT",
        parse.optional_port,
        "",
        "Port that clients are told for this replica; empty is GRPC_PORT.",
    )
    external_ip: str = _later(
        Group.LISTEN,
        "PERSYS_EXTERNAL_IP",
        parse.text,
        "",
        "Further address that the server certificate is issued for.",
        by=_VAULT,
    )

    store: StoreTarget = _row(
        Group.STORE,
        "PERSYS_STORE",
        parse.store,
        "etcd",
        "Where cluster state lives: etcd, sqlite:PATH (one replica, durable) or memory (lost at"
        " exit).",
    )
    data_dir: str = _row(
        Group.STORE,
        "PERSYS_DATA_DIR",
        parse.path,
        "/var/lib/persys-scheduler",
        "Folder for what this replica keeps for itself; relative sqlite paths count from it.",
    )
    etcd_endpoints: tuple[str, ...] = _row(
        Group.STORE,
        "ETCD_ENDPOINTS",
        parse.name_list,
        "localhost:2379",
        "Comma list of etcd endpoints, host:port.",
    )
    etcd_username: str = _row(
        Group.STORE, "ETCD_USERNAME", parse.text, "", "User of etcd; empty where it asks for none."
    )
    etcd_password: str = _secret(Group.STORE, "ETCD_PASSWORD", "Password of that user.", by="")
    etcd_tls_ca: str = _row(
        Group.STORE,
        "ETCD_TLS_CA",
        parse.path,
        "",
        "Certificates of the authorities that etcd is checked against; TLS is on when this is set.",
    )
    etcd_tls_cert: str = _row(
        Group.STORE, "ETCD_TLS_CERT", parse.path, "", "Client certificate towards etcd."
    )
    etcd_tls_key: str = _row(
        Group.STORE, "ETCD_TLS_KEY", parse.path, "", "Key of that certificate."
    )
    etcd_compact_interval: timedelta = _row(
        Group.STORE,
        "SCHEDULER_ETCD_COMPACT_INTERVAL",
        parse.Span("1s", or_never=True),
        "5m",
        "How often the leader compacts etcd to the revision of that long ago; 0 is never.",
    )

    ha_mode: HaMode = _row(
        Group.HA,
        "SCHEDULER_HA_MODE",
        parse.choice(HaMode),
        "failover",
        "failover: one replica acts for all nodes. active-active: each acts for the nodes of its"
        " shard, of a fixed number. elastic: the replicas that are there divide the nodes.",
    )
    shard_count: int = _row(
        Group.HA,
        "SCHEDULER_SHARD_COUNT",
        parse.whole(1, 1024),
        "1",
        "Number of shards in active-active mode; the same at every replica.",
    )
    shard_index: int = _row(
        Group.HA,
        "SCHEDULER_SHARD_INDEX",
        parse.whole(0, 1023),
        "0",
        "Shard of this replica in active-active mode, from 0.",
    )
    leader_ttl: timedelta = _row(
        Group.HA,
        "SCHEDULER_LEADER_TTL",
        parse.Span("1s"),
        "15s",
        "Lifetime of the leader lease; another replica takes over about that long after a crash.",
    )

    heartbeat_interval: timedelta = _row(
        Group.LOOPS,
        "SCHEDULER_HEARTBEAT_INTERVAL",
        parse.Span("100ms"),
        "10s",
        "How often agents are asked to send heartbeats; a node lease is three of them.",
    )
    node_unavailable_grace: timedelta = _row(
        Group.LOOPS,
        "SCHEDULER_NODE_UNAVAILABLE_GRACE",
        parse.Span("1s"),
        "3m",
        "How long a node may be silent before its workloads are moved.",
    )
    reconcile_interval: timedelta = _row(
        Group.LOOPS,
        "SCHEDULER_RECONCILE_INTERVAL",
        parse.Span("100ms"),
        "5s",
        "How often desired and observed state are compared.",
    )
    reconcile_concurrency: int = _row(
        Group.LOOPS,
        "SCHEDULER_RECONCILE_CONCURRENCY",
        parse.whole(1, 10_000),
        "64",
        "How many nodes or workloads are worked on at the same time.",
    )
    drift_interval: timedelta = _row(
        Group.LOOPS,
        "SCHEDULER_DRIFT_DETECT_INTERVAL",
        parse.Span("1s"),
        "30s",
        "How often drift is recorded, told and remedied; a node is listed at most once in it.",
    )
    reapply_guard: timedelta = _row(
        Group.LOOPS,
        "SCHEDULER_REAPPLY_GUARD",
        parse.Span("1s", or_never=True),
        "45s",
        "Least time between two applies of one workload; never under 15s.",
    )
    missing_grace: timedelta = _row(
        Group.LOOPS,
        "SCHEDULER_MISSING_GRACE_PERIOD",
        parse.Span("1s", or_never=True),
        "10s",
        "How long after its last apply a workload may be absent from its agent's list.",
    )
    orphan_policy: OrphanPolicy = _row(
        Group.LOOPS,
        "SCHEDULER_ORPHAN_POLICY",
        parse.choice(OrphanPolicy),
        "report",
        "Work that an agent runs and the scheduler does not know: report, adopt or delete.",
    )

    agent_rpc_timeout: timedelta = _row(
        Group.AGENTS,
        "SCHEDULER_AGENT_RPC_TIMEOUT",
        parse.Span("100ms"),
        "10s",
        "Deadline of one call to an agent.",
    )
    agent_apply_timeout: timedelta = _row(
        Group.AGENTS,
        "SCHEDULER_AGENT_APPLY_TIMEOUT",
        parse.Span("1s"),
        "45s",
        "How long a container or Compose application may take to start.",
    )
    agent_vm_apply_timeout: timedelta = _row(
        Group.AGENTS,
        "SCHEDULER_AGENT_VM_APPLY_TIMEOUT",
        parse.Span("1s"),
        "240s",
        "How long a virtual machine may take to start.",
    )
    agent_delete_timeout: timedelta = _row(
        Group.AGENTS,
        "SCHEDULER_AGENT_DELETE_TIMEOUT",
        parse.Span("1s"),
        "60s",
        "How long a deletion may take on the agent.",
    )
    agent_status_poll_interval: timedelta = _row(
        Group.AGENTS,
        "SCHEDULER_AGENT_STATUS_POLL_INTERVAL",
        parse.Span("100ms"),
        "1s",
        "How often a deletion is asked after.",
    )
    agent_tls_enabled: bool | None = _later(
        Group.AGENTS,
        "SCHEDULER_AGENT_TLS_ENABLED",
        parse.optional_flag,
        "",
        "TLS towards agents; empty means on, except with --insecure.",
        by=_TLS,
    )

    log_level: str = _row(
        Group.OBSERVABILITY,
        "LOG_LEVEL",
        parse.log_level,
        "info",
        "debug, info, warning, error or critical.",
    )
    log_format: LogFormat = _row(
        Group.OBSERVABILITY,
        "LOG_FORMAT",
        parse.choice(LogFormat),
        "text",
        "text (coloured on a terminal) or json.",
    )
    usage_series_max: int = _row(
        Group.OBSERVABILITY,
        "SCHEDULER_USAGE_SERIES_MAX",
        parse.whole(0, 1_000_000),
        "1000",
        "At most so many series of utilisation per workload in /metrics; the rest is counted.",
    )
    otlp_endpoint: OtlpEndpoint | None = _row(
        Group.OBSERVABILITY,
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        otlp.otlp_endpoint,
        "",
        "Collector that traces are sent to, host:port or http(s)://host:port; empty is nowhere.",
        fallbacks=("JAEGER_ENDPOINT",),
    )
    otlp_protocol: OtlpProtocol = _row(
        Group.OBSERVABILITY,
        "OTEL_EXPORTER_OTLP_PROTOCOL",
        parse.choice(OtlpProtocol),
        "",
        "http/protobuf or grpc; empty is grpc for port 4317, else http/protobuf.",
    )
    otlp_insecure: bool = _row(
        Group.OBSERVABILITY,
        "OTEL_EXPORTER_OTLP_INSECURE",
        parse.flag,
        "true",
        "Send traces without TLS where the endpoint names no scheme.",
    )
    otlp_headers: tuple[tuple[str, str], ...] = attrs.field(
        metadata={
            _KEY: Variable(
                "OTEL_EXPORTER_OTLP_HEADERS",
                otlp.pairs,
                "",
                "Comma list of key=value that is sent along with traces.",
                Group.OBSERVABILITY,
                secret=True,
            )
        },
        repr=_mask,
    )
    otel_service_name: str = _row(
        Group.OBSERVABILITY,
        "OTEL_SERVICE_NAME",
        parse.text,
        "persys-scheduler",
        "Name of this service in traces.",
    )
    otel_resource_attributes: tuple[tuple[str, str], ...] = _row(
        Group.OBSERVABILITY,
        "OTEL_RESOURCE_ATTRIBUTES",
        otlp.pairs,
        "",
        "Comma list of key=value that every trace says of this replica.",
    )
    otel_traces_sampler: Sampler = _row(
        Group.OBSERVABILITY,
        "OTEL_TRACES_SAMPLER",
        parse.choice(Sampler),
        "parentbased_always_on",
        "Traces that are kept: always_on, always_off or traceidratio, alone or after parentbased_.",
    )
    otel_traces_ratio: float = _row(
        Group.OBSERVABILITY,
        "OTEL_TRACES_SAMPLER_ARG",
        otlp.ratio,
        "1",
        "Share of the traces that traceidratio keeps, 0 to 1.",
    )

    tls_ca: str = _later(
        Group.TLS,
        "PERSYS_TLS_CA",
        parse.path,
        "/etc/persys/certs/persys-scheduler/ca.pem",
        "Certificates of the authorities that peers are checked against.",
        by=_TLS,
    )
    tls_cert: str = _later(
        Group.TLS,
        "PERSYS_TLS_CERT",
        parse.path,
        "/etc/persys/certs/persys-scheduler/persys_scheduler.crt",
        "Certificate of this server.",
        by=_TLS,
    )
    tls_key: str = _later(
        Group.TLS,
        "PERSYS_TLS_KEY",
        parse.path,
        "/etc/persys/certs/persys-scheduler/persys_scheduler-key.key",
        "Private key of this server.",
        by=_TLS,
    )
    authz: AuthzMode = _later(
        Group.TLS,
        "PERSYS_AUTHZ",
        parse.choice(AuthzMode),
        "enforce",
        "enforce: a certificate's role decides what it may call. warn: only say so in the log.",
        by=_TLS,
    )

    vault_enabled: bool = _later(
        Group.VAULT,
        "PERSYS_VAULT_ENABLED",
        parse.flag,
        "false",
        "Have certificates issued by Vault or OpenBao.",
        by=_VAULT,
    )
    vault_addr: str = _later(
        Group.VAULT,
        "PERSYS_VAULT_ADDR",
        parse.text,
        "http://127.0.0.1:8200",
        "Address of Vault.",
        by=_VAULT,
    )
    vault_auth_method: VaultMethod = _later(
        Group.VAULT,
        "PERSYS_VAULT_AUTH_METHOD",
        parse.choice(VaultMethod),
        "token",
        "token or approle.",
        by=_VAULT,
    )
    vault_token: str = _secret(
        Group.VAULT, "PERSYS_VAULT_TOKEN", "Token for the method token.", by=_VAULT
    )
    vault_manager_addr: str = _later(
        Group.VAULT,
        "PERSYS_VAULT_MANAGER_ADDR",
        parse.text,
        "vault-manager:50069",
        "Service that hands out AppRole credentials.",
        by=_VAULT,
    )
    vault_approle_mount: str = _later(
        Group.VAULT,
        "PERSYS_VAULT_APPROLE_MOUNT",
        parse.text,
        "auth/approle",
        "Where the AppRole method is mounted.",
        by=_VAULT,
    )
    vault_role_id: str = _later(
        Group.VAULT,
        "PERSYS_VAULT_APPROLE_ROLE_ID",
        parse.text,
        "",
        "AppRole role; empty asks the vault-manager.",
        by=_VAULT,
    )
    vault_secret_id: str = _secret(
        Group.VAULT,
        "PERSYS_VAULT_APPROLE_SECRET_ID",
        "AppRole secret; empty asks the vault-manager.",
        by=_VAULT,
    )
    vault_pki_mount: str = _later(
        Group.VAULT,
        "PERSYS_VAULT_PKI_MOUNT",
        parse.text,
        "pki",
        "Mount of the PKI engine.",
        by=_VAULT,
    )
    vault_pki_role: str = _later(
        Group.VAULT,
        "PERSYS_VAULT_PKI_ROLE",
        parse.text,
        "persys-scheduler",
        "PKI role that certificates are issued under.",
        by=_VAULT,
    )
    vault_cert_ttl: timedelta = _later(
        Group.VAULT,
        "PERSYS_VAULT_CERT_TTL",
        parse.Span("1s"),
        "24h",
        "Lifetime asked for each certificate.",
        by=_VAULT,
    )
    vault_retry_interval: timedelta = _later(
        Group.VAULT,
        "PERSYS_VAULT_RETRY_INTERVAL",
        parse.Span("1s"),
        "1m",
        "How often a failed issue is tried again.",
        by=_VAULT,
    )
    vault_service_name: str = _later(
        Group.VAULT,
        "PERSYS_VAULT_SERVICE_NAME",
        parse.text,
        "persys-scheduler",
        "Common name of the certificate.",
        by=_VAULT,
    )
    vault_service_domain: str = _later(
        Group.VAULT,
        "PERSYS_VAULT_SERVICE_DOMAIN",
        parse.text,
        "",
        "Domain under which the service name is issued as well.",
        by=_VAULT,
    )

    redis_addr: str = _row(
        Group.REDIS,
        "REDIS_ADDR",
        parse.address,
        "",
        "host:port of Redis; without it and without sentinels events stay in this replica's"
        " memory.",
    )
    redis_username: str = _row(Group.REDIS, "REDIS_USERNAME", parse.text, "", "User of Redis.")
    redis_password: str = _secret(Group.REDIS, "REDIS_PASSWORD", "Password of Redis.")
    redis_db: int = _row(Group.REDIS, "REDIS_DB", parse.whole(0, 65535), "0", "Database number.")
    redis_sentinels: tuple[str, ...] = _row(
        Group.REDIS,
        "REDIS_SENTINELS",
        parse.addresses,
        "",
        "Comma list of sentinels, host:port, instead of REDIS_ADDR.",
    )
    redis_sentinel_username: str = _row(
        Group.REDIS, "REDIS_SENTINEL_USERNAME", parse.text, "", "User of the sentinels."
    )
    redis_sentinel_password: str = _secret(
        Group.REDIS, "REDIS_SENTINEL_PASSWORD", "Password of the sentinels."
    )
    redis_master_name: str = _row(
        Group.REDIS,
        "REDIS_MASTER_NAME",
        parse.text,
        "",
        "Name of the master that the sentinels watch.",
    )
    redis_tls_enabled: bool = _row(
        Group.REDIS,
        "REDIS_TLS_ENABLED",
        parse.flag,
        "false",
        "TLS towards Redis and its sentinels.",
    )
    redis_tls_ca: str = _row(
        Group.REDIS,
        "REDIS_TLS_CA",
        parse.path,
        "",
        "Certificates of the authorities that Redis is checked against.",
    )
    redis_tls_cert: str = _row(Group.REDIS, "REDIS_TLS_CERT", parse.path, "", "Client certificate.")
    redis_tls_key: str = _row(
        Group.REDIS, "REDIS_TLS_KEY", parse.path, "", "Key of the client certificate."
    )
    redis_reconcile_ttl: timedelta = _row(
        Group.REDIS,
        "REDIS_RECONCILE_TTL",
        parse.Span("1s"),
        "24h",
        "How long reconciliation metadata is kept.",
    )
    redis_event_ttl: timedelta = _row(
        Group.REDIS,
        "REDIS_EVENT_TTL",
        parse.Span("1s"),
        "24h",
        "How long events are kept.",
    )
    event_max_entries: int = _row(
        Group.REDIS,
        "REDIS_EVENT_MAX_ENTRIES",
        parse.whole(1, 10_000_000),
        "1000",
        "How many events are kept, in Redis and in memory.",
    )
    meter_stream_enabled: bool = _row(
        Group.REDIS,
        "METER_REDIS_STREAM_ENABLED",
        parse.flag,
        "true",
        "Publish utilisation for metering.",
    )
    meter_stream: str = _row(
        Group.REDIS,
        "METER_REDIS_STREAM",
        parse.text,
        "persys:usage:stream",
        "Stream that utilisation is published to.",
    )
    meter_stream_max_entries: int = _row(
        Group.REDIS,
        "METER_REDIS_STREAM_MAXLEN",
        parse.whole(1, 1_000_000_000),
        "100000",
        "How many entries that stream keeps.",
    )

    domain: str = _later(
        Group.DNS, "DOMAIN", parse.text, "persys.local", "DNS zone of the schedulers.", by=_DNS
    )
    agents_domain: str = _later(
        Group.DNS,
        "AGENTS_DISCOVERY_DOMAIN",
        parse.text,
        "agents.persys.cloud",
        "DNS zone of the agents.",
        by=_DNS,
    )
    shard_key: str = _later(
        Group.DNS,
        "SCHEDULER_SHARD_KEY",
        parse.text,
        "default",
        "DNS label under which agents are registered; not a shard of active-active mode.",
        by=_DNS,
    )

    rgw_endpoint: str = _later(
        Group.RGW,
        "PERSYS_RGW_ENDPOINT",
        parse.text,
        "",
        "URL of Ceph RGW.",
        by=_RGW,
        fallbacks=("PERSYS_S3_ENDPOINT",),
    )
    rgw_access_key: str = _secret(
        Group.RGW,
        "PERSYS_RGW_ACCESS_KEY",
        "Access key of the control plane.",
        by=_RGW,
        fallbacks=("PERSYS_S3_ACCESS_KEY",),
    )
    rgw_secret_key: str = _secret(
        Group.RGW,
        "PERSYS_RGW_SECRET_KEY",
        "Secret key of the control plane.",
        by=_RGW,
        fallbacks=("PERSYS_S3_SECRET_KEY",),
    )
    rgw_region: str = _later(
        Group.RGW, "PERSYS_RGW_REGION", parse.text, "default", "Region of new buckets.", by=_RGW
    )
    rgw_admin_path: str = _later(
        Group.RGW, "PERSYS_RGW_ADMIN_PATH", parse.text, "admin", "Path of the admin API.", by=_RGW
    )
    rgw_vault_path_prefix: str = _later(
        Group.RGW,
        "PERSYS_RGW_VAULT_PATH_PREFIX",
        parse.text,
        "secret/data/persys/rgw/buckets",
        "Where bucket keys are kept in Vault.",
        by=_RGW,
    )

    @property
    def secrets(self) -> frozenset[str]:
        """The values that no text may contain."""
        return frozenset(
            text
            for field, variable in variables().items()
            if variable.secret
            for text in _secret_texts(getattr(self, field))
        ) | _secrets_of(self.otlp_endpoint)


def _secret_texts(value: str | tuple[tuple[str, str], ...]) -> Iterator[str]:
    """The texts to be masked; a short plain header, a tenant's number for one, is none."""
    given = (("password", value),) if isinstance(value, str) else value
    for name, text in given:
        if text and (is_secret_name(name) or len(text) >= _NO_PLAIN_WORD):
            yield text


def _secrets_of(endpoint: OtlpEndpoint | None) -> frozenset[str]:
    """What an address says besides where."""
    if endpoint is None:
        return frozenset()
    return frozenset({endpoint.password, endpoint.authorization} - {""})


@cache
def variables() -> Mapping[str, Variable]:
    """The variables by the name of their field, in the order of the table."""
    return {field.name: field.metadata[_KEY] for field in attrs.fields(Settings)}
