"""The settings: what is read, what is refused, and that everything wrong is told at once."""

from __future__ import annotations

import re
import socket
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persys_server.scheduler_config import scheduler_config
from persys_server.settings import (
    HaMode,
    SettingsError,
    StoreKind,
    StoreTarget,
    load_settings,
    parse,
    variables,
)
from persys_server.settings.load import not_acted_on, unknown
from persys_server.settings.otlp import OtlpEndpoint
from persys_server.settings.render import markdown_table, sample_env

ROOT = Path(__file__).parents[3]
SERVER = ROOT / "packages/persys-server/src/persys_server"

# Every variable of the seed, of both reference pages, and of our own decisions.
EXPECTED = """
    PERSYS_GRPC_ADDR GRPC_PORT METRICS_PORT PERSYS_EXTERNAL_IP ETCD_ENDPOINTS DOMAIN
    AGENTS_DISCOVERY_DOMAIN SCHEDULER_SHARD_KEY SCHEDULER_ADVERTISE_IP SCHEDULER_ADVERTISE_PORT
    REDIS_ADDR REDIS_PASSWORD REDIS_DB REDIS_RECONCILE_TTL REDIS_EVENT_TTL REDIS_EVENT_MAX_ENTRIES
    PERSYS_TLS_CA PERSYS_TLS_CERT PERSYS_TLS_KEY PERSYS_VAULT_ENABLED PERSYS_VAULT_ADDR
    PERSYS_VAULT_AUTH_METHOD PERSYS_VAULT_TOKEN PERSYS_VAULT_APPROLE_ROLE_ID
    PERSYS_VAULT_APPROLE_SECRET_ID PERSYS_VAULT_PKI_MOUNT PERSYS_VAULT_PKI_ROLE
    PERSYS_VAULT_CERT_TTL PERSYS_VAULT_RETRY_INTERVAL PERSYS_VAULT_SERVICE_NAME
    PERSYS_VAULT_SERVICE_DOMAIN SCHEDULER_AGENT_TLS_ENABLED SCHEDULER_AGENT_STATUS_POLL_INTERVAL
    SCHEDULER_AGENT_APPLY_TIMEOUT SCHEDULER_AGENT_VM_APPLY_TIMEOUT SCHEDULER_AGENT_DELETE_TIMEOUT
    SCHEDULER_AGENT_RPC_TIMEOUT SCHEDULER_RECONCILE_INTERVAL SCHEDULER_DRIFT_DETECT_INTERVAL
    SCHEDULER_NODE_UNAVAILABLE_GRACE SCHEDULER_REAPPLY_GUARD SCHEDULER_MISSING_GRACE_PERIOD
    LOG_LEVEL LOG_FORMAT OTEL_EXPORTER_OTLP_ENDPOINT JAEGER_ENDPOINT OTEL_EXPORTER_OTLP_INSECURE
    SCHEDULER_HA_MODE SCHEDULER_SHARD_COUNT SCHEDULER_SHARD_INDEX SCHEDULER_RECONCILE_CONCURRENCY
    PERSYS_RGW_ENDPOINT PERSYS_RGW_ACCESS_KEY PERSYS_RGW_SECRET_KEY PERSYS_S3_ENDPOINT
    PERSYS_S3_ACCESS_KEY PERSYS_S3_SECRET_KEY PERSYS_RGW_REGION PERSYS_RGW_ADMIN_PATH
    PERSYS_RGW_VAULT_PATH_PREFIX PERSYS_VAULT_MANAGER_ADDR PERSYS_VAULT_APPROLE_MOUNT
    METER_REDIS_STREAM_ENABLED METER_REDIS_STREAM METER_REDIS_STREAM_MAXLEN
    PERSYS_STORE PERSYS_DATA_DIR PERSYS_AUTHZ SCHEDULER_HEARTBEAT_INTERVAL SCHEDULER_LEADER_TTL
    SCHEDULER_ORPHAN_POLICY SCHEDULER_ETCD_COMPACT_INTERVAL SCHEDULER_USAGE_SERIES_MAX
    ETCD_USERNAME ETCD_PASSWORD ETCD_TLS_CA ETCD_TLS_CERT ETCD_TLS_KEY
    REDIS_SENTINELS REDIS_MASTER_NAME REDIS_USERNAME REDIS_TLS_ENABLED REDIS_TLS_CA REDIS_TLS_CERT
    REDIS_TLS_KEY REDIS_SENTINEL_USERNAME REDIS_SENTINEL_PASSWORD
    OTEL_EXPORTER_OTLP_PROTOCOL OTEL_EXPORTER_OTLP_HEADERS OTEL_SERVICE_NAME
    OTEL_RESOURCE_ATTRIBUTES OTEL_TRACES_SAMPLER OTEL_TRACES_SAMPLER_ARG
""".split()


def problems(environment: dict[str, str]) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        load_settings(environment)
    return caught.value.problems


def test_every_known_variable_is_read() -> None:
    """The table has every variable of the sources and of the decisions, and no other."""
    names = {name for variable in variables().values() for name in variable.names}
    assert names == set(EXPECTED)


def test_an_empty_environment_gives_the_defaults() -> None:
    """The defaults are the seed's where the sources disagree."""
    settings = load_settings({})
    assert settings.grpc_port == 8085
    assert settings.metrics_port == 8084
    assert settings.drift_interval == timedelta(seconds=30)
    assert settings.shard_key == "default"
    assert settings.vault_enabled is False
    assert settings.vault_addr == "http://127.0.0.1:8200"
    assert settings.tls_ca == "/etc/persys/certs/persys-scheduler/ca.pem"
    assert settings.store == StoreTarget(StoreKind.ETCD)
    assert settings.ha_mode is HaMode.FAILOVER
    assert settings.agent_tls_enabled is None
    assert settings.advertise_port is None
    assert settings.etcd_endpoints == ("localhost:2379",)


def test_every_default_passes_its_own_parser() -> None:
    """What the sample file shows as a default is accepted when written out."""
    written = {v.name: v.default for v in variables().values() if v.default}
    assert load_settings(written) == load_settings({})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("15s", 15), ("2m", 120), ("24h", 86400), ("1500ms", 1.5), ("1h30m", 5400), ("45", 45),
        ("86400", 86400), ("1.5", 1.5), ("1m0s", 60), ("1.5h", 5400),
    ],
)  # fmt: skip
def test_durations_are_read_in_every_form(text: str, seconds: float) -> None:
    """Go's forms and bare seconds are durations everywhere, also where the reference had one."""
    assert parse.parse_duration(text) == timedelta(seconds=seconds)
    settings = load_settings({"PERSYS_VAULT_CERT_TTL": text, "REDIS_EVENT_TTL": text})
    assert settings.vault_cert_ttl == settings.redis_event_ttl == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["-5s", "5d", "s", "1 m", "5m3", "1e3", "inf", "nan", "9" * 40])
def test_other_durations_are_refused(text: str) -> None:
    """A text that is no duration stops the start; it is never read as the default."""
    (problem,) = problems({"SCHEDULER_RECONCILE_INTERVAL": text})
    assert problem.startswith("SCHEDULER_RECONCILE_INTERVAL: ")
    assert text[:40] in problem
    assert "a duration" in problem


def test_zero_switches_off_only_where_that_means_something() -> None:
    """Compaction may be 0, an interval of a loop may not."""
    assert load_settings(
        {"SCHEDULER_ETCD_COMPACT_INTERVAL": "0"}
    ).etcd_compact_interval == timedelta(0)
    assert "at least 100ms" in problems({"SCHEDULER_RECONCILE_INTERVAL": "0"})[0]


@pytest.mark.parametrize("text", ["true", "1", "yes", "TRUE", " Yes "])
def test_switches_are_read_in_any_case(text: str) -> None:
    """Blanks around a value and its case do not count."""
    assert load_settings({"METER_REDIS_STREAM_ENABLED": text}).meter_stream_enabled is True


@pytest.mark.parametrize("text", ["false", "0", "no", "No"])
def test_switches_can_be_switched_off(text: str) -> None:
    """The other half of the accepted words."""
    assert load_settings({"METER_REDIS_STREAM_ENABLED": text}).meter_stream_enabled is False


def test_all_problems_are_told_at_once() -> None:
    """Each wrong variable has a line with its name, its value and what is accepted."""
    found = problems(
        {"GRPC_PORT": "x", "METRICS_PORT": "70000", "LOG_LEVEL": "loud", "PERSYS_STORE": "mysql",
         "SCHEDULER_HA_MODE": "both", "REDIS_DB": "-1"}
    )  # fmt: skip
    assert len(found) == 6
    assert "GRPC_PORT: 'x' is not valid; accepted is a port from 1 to 65535" in found
    assert "LOG_LEVEL: 'loud' is not valid; accepted is one of trace, debug" in "\n".join(found)


def test_cross_field_problems_are_told_at_once() -> None:
    """Settings that cannot hold together are refused with both names."""
    found = "\n".join(
        problems(
            {
                "SCHEDULER_NODE_UNAVAILABLE_GRACE": "20s", "GRPC_PORT": "1", "METRICS_PORT": "1",
                "SCHEDULER_SHARD_INDEX": "2", "SCHEDULER_SHARD_COUNT": "2",
                "SCHEDULER_HA_MODE": "active-active", "PERSYS_STORE": "memory",
                "REDIS_SENTINELS": "a:1", "PERSYS_RGW_ENDPOINT": "http://rgw",
                "PERSYS_VAULT_ENABLED": "true", "REDIS_TLS_KEY": "/k",
            }
        )
    )  # fmt: skip
    for name in (
        "SCHEDULER_NODE_UNAVAILABLE_GRACE", "METRICS_PORT", "SCHEDULER_SHARD_INDEX",
        "SCHEDULER_HA_MODE", "REDIS_MASTER_NAME", "PERSYS_RGW_ACCESS_KEY", "PERSYS_VAULT_TOKEN",
        "REDIS_TLS_CERT",
    ):  # fmt: skip
        assert name in found


@pytest.mark.parametrize("mode", ["active-active", "elastic"])
@pytest.mark.parametrize("store", ["sqlite:x.db", "memory"])
def test_replicas_that_share_the_work_need_etcd(mode: str, store: str) -> None:
    """Modes in which several replicas act are refused where they cannot share a store."""
    (problem,) = problems({"SCHEDULER_HA_MODE": mode, "PERSYS_STORE": store})
    assert problem == (
        f"SCHEDULER_HA_MODE: {mode} needs replicas that share PERSYS_STORE=etcd, but it is {store};"
        " set PERSYS_STORE=etcd, or SCHEDULER_HA_MODE=failover"
    )
    assert load_settings({"SCHEDULER_HA_MODE": mode}).ha_mode == mode


@pytest.mark.parametrize(("count", "index"), [(3, 3), (1, 1), (2, 7)])
@pytest.mark.parametrize("mode", ["active-active", "failover", "elastic"])
def test_a_shard_out_of_range_is_refused(mode: str, count: int, index: int) -> None:
    """L05: both values are named, and what is accepted."""
    shard = {"SCHEDULER_SHARD_COUNT": str(count), "SCHEDULER_SHARD_INDEX": str(index)}
    (problem,) = problems({"SCHEDULER_HA_MODE": mode, **shard})
    assert problem == (
        f"SCHEDULER_SHARD_INDEX: {index} is not below SCHEDULER_SHARD_COUNT ({count});"
        f" accepted is 0 to {count - 1}"
    )


@pytest.mark.parametrize("mode", ["failover", "elastic"])
def test_shards_are_refused_where_there_are_none(mode: str) -> None:
    """Whoever counts shards and forgets the mode would have one replica act for everything."""
    shard = {"SCHEDULER_SHARD_COUNT": "3", "SCHEDULER_SHARD_INDEX": "1"}
    (problem,) = problems({"SCHEDULER_HA_MODE": mode, **shard})
    assert problem.startswith("SCHEDULER_SHARD_COUNT: 3 shards are of active-active mode")
    settings = load_settings({"SCHEDULER_HA_MODE": "active-active", **shard})
    ha = scheduler_config(settings).ha
    assert (ha.mode, ha.shard_count, ha.shard_index) == (HaMode.ACTIVE_ACTIVE, 3, 1)
    assert ha.version == version("persys-server")


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({}, f"{socket.gethostname()}:8085"),
        ({"PERSYS_GRPC_ADDR": "::"}, f"{socket.gethostname()}:8085"),
        ({"PERSYS_GRPC_ADDR": "[::]", "GRPC_PORT": "99"}, f"{socket.gethostname()}:99"),
        ({"PERSYS_GRPC_ADDR": "10.0.0.7"}, "10.0.0.7:8085"),
        ({"PERSYS_GRPC_ADDR": "fd00::7"}, "[fd00::7]:8085"),
        ({"PERSYS_GRPC_ADDR": "inside.example"}, "inside.example:8085"),
        ({"SCHEDULER_ADVERTISE_IP": "s1.example"}, "s1.example:8085"),
        ({"SCHEDULER_ADVERTISE_IP": "fd00::8", "SCHEDULER_ADVERTISE_PORT": "7"}, "[fd00::8]:7"),
    ],
)
def test_the_address_that_clients_are_told(environment: dict[str, str], told: str) -> None:
    """What the operator says, else where it listens, and never an address that is everywhere."""
    assert scheduler_config(load_settings(environment)).ha.address == told


@pytest.mark.parametrize("given", ["s1:8085", "http://s1", "a b", "-a", "fd00::zz", "1.2.3.4/24"])
def test_an_advertised_host_has_no_port(given: str) -> None:
    """The port has a variable of its own."""
    (problem,) = problems({"SCHEDULER_ADVERTISE_IP": given})
    assert problem.endswith("accepted is a host name or an IP address, without a port")


def test_the_grace_may_be_exactly_three_intervals() -> None:
    """The bound itself is accepted."""
    settings = load_settings({"SCHEDULER_NODE_UNAVAILABLE_GRACE": "30s"})
    assert settings.node_unavailable_grace == timedelta(seconds=30)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("etcd", StoreTarget(StoreKind.ETCD)),
        ("Memory", StoreTarget(StoreKind.MEMORY)),
        ("sqlite:state.db", StoreTarget(StoreKind.SQLITE, "state.db")),
        ("sqlite:/a:b/c", StoreTarget(StoreKind.SQLITE, "/a:b/c")),
    ],
)
def test_the_store_is_read(text: str, target: StoreTarget) -> None:
    """PERSYS_STORE is etcd, memory or sqlite with a path."""
    assert load_settings({"PERSYS_STORE": text}).store == target


@pytest.mark.parametrize("text", ["sqlite", "sqlite:", "etcd:x", "memory:", "file:x"])
def test_other_stores_are_refused(text: str) -> None:
    """A store without its path, or with one too many, is an error that shows the grammar."""
    assert "sqlite:PATH" in problems({"PERSYS_STORE": text})[0]


def test_fallback_variables_count_where_the_first_is_unset() -> None:
    """JAEGER_ENDPOINT and the PERSYS_S3_ names are read second."""
    only = load_settings({"JAEGER_ENDPOINT": "j:1"}).otlp_endpoint
    assert only == OtlpEndpoint("", "j", 1)
    both = {"JAEGER_ENDPOINT": "j:1", "OTEL_EXPORTER_OTLP_ENDPOINT": "o:2"}
    assert load_settings(both).otlp_endpoint == OtlpEndpoint("", "o", 2)
    s3 = {"PERSYS_S3_ENDPOINT": "e", "PERSYS_S3_ACCESS_KEY": "a", "PERSYS_S3_SECRET_KEY": "s"}
    assert load_settings(s3).rgw_secret_key == "s"


def test_secrets_never_show() -> None:
    """A04: neither repr nor an error text has a secret's value."""
    given = {v.name: f"s3cr3t-{v.name}" for v in variables().values() if v.secret}
    others = {
        "PERSYS_RGW_ENDPOINT": "http://rgw",
        "ETCD_USERNAME": "persys",
        "OTEL_EXPORTER_OTLP_HEADERS": f"x-t=1,a={given['OTEL_EXPORTER_OTLP_HEADERS']}",
    }
    settings = load_settings(given | others)
    assert "s3cr3t" not in repr(settings)
    assert settings.secrets == set(given.values())


def test_redis_is_named_by_host_and_port_alone() -> None:
    """A04: a URL is refused with what is accepted, and its password is not repeated."""
    [problem] = problems({"REDIS_ADDR": "h:1:2"})
    assert problem.startswith("REDIS_ADDR: 'h:1:2' is not valid; accepted is host:port")
    [problem] = problems({"REDIS_ADDR": "redis://u:s3cr3t@h:6379/0"})
    assert problem.startswith("REDIS_ADDR: ")
    assert "host:port" in problem
    assert "s3cr3t" not in problem
    [problem] = problems({"REDIS_SENTINELS": "s1:26379,s2:port", "REDIS_MASTER_NAME": "m"})
    assert problem.startswith("REDIS_SENTINELS: ")


def test_certificates_for_redis_need_its_tls() -> None:
    """Named, but not used: nobody shall believe that the way to Redis is encrypted."""
    [problem] = problems({"REDIS_ADDR": "r", "REDIS_TLS_CA": "/ca.pem"})
    assert problem.startswith("REDIS_TLS_ENABLED: ")


def test_settings_without_effect_are_named() -> None:
    """What is set and not acted on can be told to the operator; defaults do not count."""
    set_by_hand = {"PERSYS_RGW_REGION": "eu", "GRPC_PORT": "9000", "DOMAIN": "persys.local"}
    assert not_acted_on(set_by_hand) == ("PERSYS_RGW_REGION",)


def test_the_table_is_honest() -> None:
    """A setting is used outside the settings exactly where it is not marked as waiting."""
    sources = "\n".join(
        path.read_text() for path in SERVER.rglob("*.py") if path.parent.name != "settings"
    )
    used = {name for name in variables() if re.search(rf"settings\.(provided\.)?{name}\b", sources)}
    assert used == {name for name, variable in variables().items() if not variable.later}


def test_sample_env_is_up_to_date() -> None:
    """sample.env is what the table says: python -m persys_server.settings --sample."""
    assert (ROOT / "sample.env").read_text() == sample_env()


def test_the_operations_page_has_the_settings() -> None:
    """docs/operations.md holds the table that --markdown prints."""
    assert markdown_table() in (ROOT / "docs/operations.md").read_text()


def test_the_sample_sets_nothing() -> None:
    """Loaded as it is, the sample changes no default; with the marks removed it still loads."""
    lines = sample_env().splitlines()
    assert all(line.startswith("#") for line in lines if line)
    pairs = (line[2:].partition("=") for line in lines)
    written = {name: value for name, _, value in pairs if name.isupper()}
    assert len(written) == len(variables())
    assert load_settings(written) == load_settings({})


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from(EXPECTED), st.text(max_size=20), max_size=4))
def test_any_text_is_read_or_refused(environment: dict[str, str]) -> None:
    """Whatever the values are, the result is settings or SettingsError that names variables."""
    found: tuple[str, ...] = ("GRPC_PORT: none",)
    try:
        load_settings(environment)
    except SettingsError as error:
        found = error.problems
    assert found
    assert all(problem.split(":")[0] in EXPECTED for problem in found)


DURATIONS = {v.name: v for v in variables().values() if isinstance(v.parse, parse.Span)}


def test_every_duration_has_a_least_value() -> None:
    """No interval, lifetime or deadline may be so short that nothing works any more."""
    spans = {
        v.name
        for v in variables().values()
        if v.default and isinstance(v.parse(v.default), timedelta)
    }
    assert spans == set(DURATIONS)


@pytest.mark.parametrize("name", DURATIONS)
@pytest.mark.parametrize("text", ["0", "0ms", "0.0001", "1ms", "99ms"])
def test_durations_that_are_too_short_are_refused(name: str, text: str) -> None:
    """The problem names the variable and the least value; 0 is for what can be switched off."""
    span = DURATIONS[name].parse
    assert isinstance(span, parse.Span)
    if span.or_never and not parse.parse_duration(text):
        load_settings({name: text})
        return
    (problem,) = problems({name: text})
    assert problem.startswith(f"{name}: ")
    assert f"at least {span.least}" in problem


def test_the_leader_lease_is_at_least_a_second() -> None:
    """A shorter one ends before it can be renewed."""
    assert load_settings({"SCHEDULER_LEADER_TTL": "1s"}).leader_ttl == timedelta(seconds=1)
    assert "at least 1s" in problems({"SCHEDULER_LEADER_TTL": "999ms"})[0]


def test_variables_that_nobody_reads_are_told() -> None:
    """Misspelt names come with the right one; what persysctl and other programs read is no typo."""
    found = dict(
        unknown(
            {
                "SCHEDULER_LEADER_TTTL": "1s", "PERSYS_DATADIR": "/x", "REDIS_PASWORD": "p",
                "PERSYS_TLS_ENABLED": "true", "PERSYS_QQQ": "", "PERSYS_SERVER": "h:1",
                "PERSYS_STORE": "memory", "HOME": "/root", "PERSYS_S3_ENDPOINT": "e",
            }
        )
    )  # fmt: skip
    assert found == {
        "SCHEDULER_LEADER_TTTL": "did you mean SCHEDULER_LEADER_TTL?",
        "PERSYS_DATADIR": "did you mean PERSYS_DATA_DIR?",
        "REDIS_PASWORD": "did you mean REDIS_PASSWORD?",
        "PERSYS_TLS_ENABLED": "no release reads it; TLS is on unless --insecure is given",
        "PERSYS_QQQ": "unset it",
    }
