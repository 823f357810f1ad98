"""What settings demand of each other. Each check is one small function; all of them are run.

Not decided here: what a single variable may hold (``parse``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

from persys_core.model.replica import HaMode
from persys_server.settings.otlp import OtlpProtocol, chosen_protocol
from persys_server.settings.parse import StoreKind, VaultMethod
from persys_server.settings.table import Settings

__all__ = ["conflicts"]

_LEASE_INTERVALS = 3


def _seconds(duration: timedelta) -> str:
    return f"{duration.total_seconds():g}s"


def conflicts(settings: Settings) -> list[str]:
    """Every pair of settings that cannot both hold, one line each."""
    return [problem for check in _CHECKS for problem in check(settings)]


def _grace(settings: Settings) -> Iterator[str]:
    least = settings.heartbeat_interval * _LEASE_INTERVALS
    if settings.node_unavailable_grace < least:
        yield (
            f"SCHEDULER_NODE_UNAVAILABLE_GRACE: {_seconds(settings.node_unavailable_grace)} is"
            f" shorter than three SCHEDULER_HEARTBEAT_INTERVAL ({_seconds(least)}); a node would be"
            " emptied before it is even called NotReady"
        )


def _ports(settings: Settings) -> Iterator[str]:
    if settings.grpc_port == settings.metrics_port:
        yield f"METRICS_PORT: {settings.metrics_port} is also GRPC_PORT; give each its own"


def _shards(settings: Settings) -> Iterator[str]:
    if settings.shard_index >= settings.shard_count:
        yield (
            f"SCHEDULER_SHARD_INDEX: {settings.shard_index} is not below SCHEDULER_SHARD_COUNT"
            f" ({settings.shard_count}); accepted is 0 to {settings.shard_count - 1}"
        )
    elif settings.shard_count > 1 and settings.ha_mode is not HaMode.ACTIVE_ACTIVE:
        yield (
            f"SCHEDULER_SHARD_COUNT: {settings.shard_count} shards are of active-active mode, but"
            f" SCHEDULER_HA_MODE is {settings.ha_mode}; set active-active, or unset it and"
            " SCHEDULER_SHARD_INDEX"
        )


def _shared_store(settings: Settings) -> Iterator[str]:
    if settings.ha_mode is not HaMode.FAILOVER and settings.store.kind is not StoreKind.ETCD:
        yield (
            f"SCHEDULER_HA_MODE: {settings.ha_mode} needs replicas that share PERSYS_STORE=etcd,"
            f" but it is {settings.store}; set PERSYS_STORE=etcd, or SCHEDULER_HA_MODE=failover"
        )


def _sentinels(settings: Settings) -> Iterator[str]:
    if settings.redis_sentinels and not settings.redis_master_name:
        yield "REDIS_MASTER_NAME: needed with REDIS_SENTINELS; name the master they watch"
    if settings.redis_master_name and not settings.redis_sentinels:
        yield "REDIS_SENTINELS: needed with REDIS_MASTER_NAME; give host:port,host:port"
    if settings.redis_sentinels and settings.redis_addr:
        yield "REDIS_ADDR: cannot be combined with REDIS_SENTINELS; set one of them"


def _redis_pair(settings: Settings) -> Iterator[str]:
    if bool(settings.redis_tls_cert) != bool(settings.redis_tls_key):
        yield "REDIS_TLS_CERT: needs REDIS_TLS_KEY and the other way round; set both or none"


def _redis_tls(settings: Settings) -> Iterator[str]:
    named = settings.redis_tls_ca or settings.redis_tls_cert or settings.redis_tls_key
    if named and not settings.redis_tls_enabled:
        yield (
            "REDIS_TLS_ENABLED: is false although certificates for Redis are named; set it to true,"
            " or unset REDIS_TLS_CA, REDIS_TLS_CERT and REDIS_TLS_KEY"
        )


def _etcd(settings: Settings) -> Iterator[str]:
    if any("@" in endpoint for endpoint in settings.etcd_endpoints):
        yield "ETCD_ENDPOINTS: no user in an endpoint; set ETCD_USERNAME and ETCD_PASSWORD"
    if bool(settings.etcd_username) != bool(settings.etcd_password):
        yield "ETCD_USERNAME: needs ETCD_PASSWORD and the other way round; set both or none"
    if bool(settings.etcd_tls_cert) != bool(settings.etcd_tls_key):
        yield "ETCD_TLS_CERT: needs ETCD_TLS_KEY and the other way round; set both or none"
    if settings.etcd_tls_cert and not settings.etcd_tls_ca:
        yield "ETCD_TLS_CA: needed with ETCD_TLS_CERT; name the authorities that etcd's is from"
    if settings.store.kind is StoreKind.ETCD and not settings.etcd_endpoints:
        yield "ETCD_ENDPOINTS: empty, but PERSYS_STORE=etcd; give host:port,host:port"


def _rgw(settings: Settings) -> Iterator[str]:
    parts = {
        "PERSYS_RGW_ENDPOINT": settings.rgw_endpoint,
        "PERSYS_RGW_ACCESS_KEY": settings.rgw_access_key,
        "PERSYS_RGW_SECRET_KEY": settings.rgw_secret_key,
    }
    missing = [name for name, value in parts.items() if not value]
    if missing and len(missing) < len(parts):
        yield f"{missing[0]}: needed with the other PERSYS_RGW_ variables; set all three or none"


def _vault_token(settings: Settings) -> Iterator[str]:
    by_token = settings.vault_enabled and settings.vault_auth_method is VaultMethod.TOKEN
    if by_token and not settings.vault_token:
        yield (
            "PERSYS_VAULT_TOKEN: needed with PERSYS_VAULT_ENABLED=true and"
            " PERSYS_VAULT_AUTH_METHOD=token; set it, or use approle"
        )


def _otlp(settings: Settings) -> Iterator[str]:
    endpoint = settings.otlp_endpoint
    if endpoint is None or not endpoint.path:
        return
    if chosen_protocol(endpoint, settings.otlp_protocol) is OtlpProtocol.GRPC:
        yield (
            f"OTEL_EXPORTER_OTLP_ENDPOINT: it has the path {endpoint.path}, which gRPC has none of;"
            " leave the path out, or set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"
        )


_CHECKS: tuple[Callable[[Settings], Iterator[str]], ...] = (
    _grace,
    _ports,
    _shards,
    _shared_store,
    _etcd,
    _sentinels,
    _redis_pair,
    _redis_tls,
    _rgw,
    _vault_token,
    _otlp,
)
