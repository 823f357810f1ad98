"""The agent's settings: where each may stand, which place wins, and what errors say."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from persys_agent.settings import (
    Accelerator,
    NodeSettings,
    Places,
    PullPolicy,
    SettingsError,
    load_settings,
    not_acted_on,
    settings_table,
    unknown_variables,
)

DURATIONS = {"15s": 15, "2m": 120, "24h": 86_400, "90": 90, "1h30m": 5400, "1.5": 1.5, "500ms": 0.5}


def places(folder: Path, *, is_root: bool = False) -> Places:
    return Places.of(is_root=is_root, home=folder / "home", working=folder / "work")


def load(folder: Path, **environment: str) -> NodeSettings:
    return load_settings(environment, places=places(folder))


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def problems_of(folder: Path, text: str = "", **environment: str) -> tuple[str, ...]:
    if text:
        environment["PERSYS_CONFIG_FILE"] = str(write(folder / "c.yaml", text))
    with pytest.raises(SettingsError) as caught:
        load(folder, **environment)
    return caught.value.problems


SAMPLES = {
    "host": "192.0.2.7",
    "port": "61001",
    "flag": "!",
    "Span": "77s",
    "address": "192.0.2.7:61000",
    "optional_address": "192.0.2.7:61000",
    "log_level": "warning",
    "pull_policy": "never",
    "docker_endpoint": "tcp://192.0.2.7:2375",
    "labels": "rack=r1",
    "node_id": "n1",
    "text": "some-text",
    "path": "/some/path",
}
CHOICES = {
    "vm_accelerator": "qemu",
    "tls_authz": "warn",
    "log_format": "json",
    "vault_auth_method": "token",
    "container_names": "node",
}


def other_value(key: str) -> str:
    """A value for the key that is not its default."""
    setting = settings_table()[key]
    name = getattr(setting.parse, "__name__", type(setting.parse).__name__)
    if key in CHOICES:
        return CHOICES[key]
    if name == "flag":
        return "false" if setting.default == "true" else "true"
    return SAMPLES.get(name, "55")


VARIABLES = [(key, name) for key, row in settings_table().items() for name in row.variables]


@pytest.mark.parametrize(("key", "name"), VARIABLES, ids=[name for _, name in VARIABLES])
def test_every_variable_works(tmp_path: Path, key: str, name: str) -> None:
    """Each documented name in the environment changes its setting (defect 39)."""
    value = other_value(key)
    needed = {
        "PERSYS_VAULT_TOKEN": "t",
        "PERSYS_VAULT_APPROLE_ROLE_ID": "r",
        "PERSYS_VAULT_APPROLE_SECRET_ID": "s",
        "PERSYS_STORAGE_NFS_SERVER": "nas",
        "PERSYS_STORAGE_NFS_EXPORT": "/srv",
    }
    settings = load(tmp_path, **{**needed, name: value})
    assert getattr(settings, key) == settings_table()[key].parse(value)
    assert getattr(settings, key) != getattr(load(tmp_path), key)


@pytest.mark.parametrize(
    "name",
    [
        *("PERSYS_METRICS_PORT", "PERSYS_GRPC_ADDR", "PERSYS_TLS_CERT", "PERSYS_TLS_KEY"),
        *("PERSYS_TLS_CA", "DOCKER_HOST", "PERSYS_COMPOSE_BINARY", "PERSYS_LIBVIRT_URI"),
        *("PERSYS_LOG_LEVEL", "PERSYS_RECONCILE_ENABLED", "PERSYS_RECONCILE_INTERVAL"),
        *("PERSYS_VERSION", "PERSYS_AGENT_GRPC_ENDPOINT", "PERSYS_STATE_PATH"),
        *("PERSYS_STATE_STORE_PATH", "OTEL_EXPORTER_JAEGER_ENDPOINT", "OTEL_SERVICE_NAME"),
        *("OTEL_EXPORTER_OTLP_ENDPOINT", "PERSYS_NODE_ID", "PERSYS_NODE_REGION"),
        *("PERSYS_NODE_ENV", "PERSYS_NODE_LABELS", "PERSYS_SCHEDULER_ADDR"),
        *("PERSYS_SCHEDULER_INSECURE", "PERSYS_GRPC_PORT", "PERSYS_TLS_ENABLED"),
        *("PERSYS_VAULT_ENABLED", "PERSYS_VAULT_ADDR", "PERSYS_VAULT_MANAGER_ADDR"),
    ],
)
def test_the_names_of_agents_in_the_field_are_known(name: str) -> None:
    """Every variable that their documentation names is read by some setting."""
    assert name in [name for _, name in VARIABLES]


def test_without_anything_the_defaults_of_the_field_hold(tmp_path: Path) -> None:
    """Ports, files and switches are those of agents in the field."""
    settings = load_settings({}, places=places(tmp_path, is_root=True))
    assert (settings.grpc_addr, settings.grpc_port, settings.metrics_port) == (
        *("0.0.0.0", 50051),
        8089,
    )
    assert settings.state_store_path == "/var/lib/persys/state.db"
    assert settings.storage_nfs_stage_dir == "/var/lib/persys/volumes/nfs"
    assert settings.compose_root == "/var/lib/persys/compose"
    assert settings.tls_cert_path == "/etc/persys/certs/agent/compute-agent.pem"
    assert settings.libvirt_uri == "qemu:///system"
    assert settings.reconcile_interval == timedelta(seconds=30)
    assert settings.compose_binary == "docker compose"
    assert settings.stop_after == timedelta(0)
    assert settings.image_pull_policy is PullPolicy.MISSING
    assert settings.vm_accelerator is Accelerator.AUTO
    assert settings.tls_enabled
    assert not settings.allow_privileged


def test_metrics_are_for_this_machine_by_default(tmp_path: Path) -> None:
    """Who wants them asked for from elsewhere says so (defect 42)."""
    assert load(tmp_path).metrics_addr == "127.0.0.1"
    assert load(tmp_path, PERSYS_METRICS_ADDR="0.0.0.0").metrics_addr == "0.0.0.0"


def test_other_users_than_root_keep_state_at_home(tmp_path: Path) -> None:
    """State stands under XDG_STATE_HOME or ~/.local/state, and libvirt is their own."""
    settings = load(tmp_path)
    home = tmp_path / "home" / ".local" / "state" / "persys"
    assert settings.state_store_path == str(home / "state.db")
    assert settings.storage_local_root == str(home / "volumes" / "local")
    assert settings.libvirt_uri == "qemu:///session"
    xdg = Places.of(is_root=False, home=tmp_path, working=tmp_path, xdg_state="/xdg")
    assert load_settings({}, places=xdg).agent_data_dir == "/xdg/persys"


def test_every_folder_follows_the_data_folder(tmp_path: Path) -> None:
    """One setting moves all that has no place of its own."""
    settings = load(
        tmp_path, PERSYS_AGENT_DATA_DIR="/data", PERSYS_COMPOSE_ROOT="/elsewhere/compose"
    )
    assert settings.state_store_path == "/data/state.db"
    assert settings.vm_images_root == "/data/images"
    assert settings.compose_root == "/elsewhere/compose"


def test_flags_win_over_environment_over_file(tmp_path: Path) -> None:
    """The nearer to the person who starts it, the stronger."""
    path = write(tmp_path / "c.yaml", "grpc_port: 1001\nmetrics_port: 1002\ntask_history: 7\n")
    environment = {
        "PERSYS_CONFIG_FILE": str(path),
        "PERSYS_GRPC_PORT": "2001",
        "PERSYS_METRICS_PORT": "2002",
    }
    settings = load_settings(environment, flags={"grpc_port": "3001"}, places=places(tmp_path))
    assert (settings.grpc_port, settings.metrics_port, settings.task_history) == (3001, 2002, 7)
    assert settings.config_file == str(path)


def test_the_first_file_of_the_search_counts(tmp_path: Path) -> None:
    """~/.persys goes before the working folder; root does not look at home."""
    write(tmp_path / "home" / ".persys" / "agent_config.yaml", "node_region: home\n")
    write(tmp_path / "work" / "agent_config.yaml", "node_region: work\n")
    assert load(tmp_path).node_region == "home"
    assert load_settings({}, places=places(tmp_path, is_root=True)).node_region == "work"


def test_a_named_file_replaces_the_search(tmp_path: Path) -> None:
    """--config wins over PERSYS_CONFIG_FILE, and either over the search (defect 39)."""
    write(tmp_path / "work" / "agent_config.yaml", "node_region: work\n")
    named = write(tmp_path / "a.yaml", "node_region: named\n")
    flagged = write(tmp_path / "b.yaml", "node_region: flagged\n")
    assert load(tmp_path, PERSYS_CONFIG_FILE=str(named)).node_region == "named"
    both = load_settings(
        {"PERSYS_CONFIG_FILE": str(named)}, config=str(flagged), places=places(tmp_path)
    )
    assert both.node_region == "flagged"


def test_a_named_file_has_to_be_there(tmp_path: Path) -> None:
    """The error names the file; no file in the search is fine."""
    (problem,) = problems_of(tmp_path, PERSYS_CONFIG_FILE=str(tmp_path / "absent.yaml"))
    assert "absent.yaml: No such file or directory" in problem
    assert load(tmp_path).config_file == ""


@pytest.mark.parametrize(("text", "seconds"), DURATIONS.items())
def test_durations(tmp_path: Path, text: str, seconds: float) -> None:
    """Units as people write them, or bare seconds."""
    settings = load(tmp_path, PERSYS_RECONCILE_INTERVAL=text)
    assert settings.reconcile_interval == timedelta(seconds=seconds)


def test_a_wrong_variable_is_named_with_its_value_and_what_is_accepted(tmp_path: Path) -> None:
    """All problems are told at once."""
    first, second = problems_of(tmp_path, PERSYS_GRPC_PORT="many", PERSYS_STOP_AFTER="soon")
    assert first == (
        "PERSYS_GRPC_PORT: 'many' is not valid; accepted is a port from 1 to 65535, or 0 for any"
        " that is free"
    )
    assert second.startswith("PERSYS_STOP_AFTER: 'soon' is not valid; accepted is a duration such")


def test_the_name_that_was_used_is_the_one_that_is_told(tmp_path: Path) -> None:
    """A further name of a setting is named as it was written."""
    wrong = problems_of(tmp_path, PERSYS_STATE_PATH="relative/state.db")
    assert wrong == ("state_store_path: 'relative/state.db' is not absolute; begin it with /",)
    (problem,) = problems_of(tmp_path, "scheduler_addr: nowhere\n")
    assert problem.startswith(f"{tmp_path}/c.yaml:1: scheduler_addr: 'nowhere' is not valid")


def test_an_unknown_key_is_an_error_with_the_nearest(tmp_path: Path) -> None:
    """A slip must not be ignored; the line is told."""
    (problem,) = problems_of(tmp_path, "grpc_port: 1\nstorage_nfs_servr: nas\n")
    assert problem == (
        f"{tmp_path}/c.yaml:2: storage_nfs_servr is no setting; did you mean storage_nfs_server?"
    )
    (far,) = problems_of(tmp_path, "xyzzy: 1\n")
    assert "see docs/agent.md" in far


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: [", "is no YAML"),
        ("- one\n", "is no mapping"),
        ("grpc_port: 1\ngrpc_port: 2\n", "grpc_port is set twice"),
        ("node_labels: {a: {b: c}, d: [[e]]}\n", "nested deeper"),
    ],
)
def test_files_that_are_none(tmp_path: Path, text: str, told: str) -> None:
    """What cannot be read as keys and values is an error that says where."""
    (problem,) = problems_of(tmp_path, text)
    assert told in problem
    assert "c.yaml" in problem


def test_the_file_may_write_values_as_yaml(tmp_path: Path) -> None:
    """Switches, numbers, nothing, lists and mappings are understood as they are written."""
    text = (
        "docker_enabled: no\nreconcile_interval: 45\nversion: 1.10\nnode_region:\nnode_env: null\n"
        "storage_nfs_options: [vers=4.2, hard]\nnode_labels: {rack: r1, zone: z}\n"
    )
    path = write(tmp_path / "c.yaml", text)
    settings = load(tmp_path, PERSYS_CONFIG_FILE=str(path))
    assert not settings.docker_enabled
    assert settings.reconcile_interval == timedelta(seconds=45)
    assert settings.version == "1.10"
    assert (settings.node_region, settings.node_env) == ("", "")
    assert settings.storage_nfs_options == "vers=4.2,hard"
    assert settings.node_labels == (("rack", "r1"), ("zone", "z"))


def test_labels_that_are_no_pairs_are_left_out(tmp_path: Path) -> None:
    """As the agents in the field do."""
    settings = load(tmp_path, PERSYS_NODE_LABELS="a=1, b = 2 ,c,=d,e=")
    assert settings.node_labels == (("a", "1"), ("b", "2"))


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"PERSYS_GRPC_PORT": "7", "PERSYS_METRICS_PORT": "7"}, "is also grpc_port"),
        ({"PERSYS_VAULT_ENABLED": "true"}, "vault_approle_role_id: needed"),
        (
            {"PERSYS_VAULT_ENABLED": "true", "PERSYS_VAULT_AUTH_METHOD": "token"},
            "vault_token: needed",
        ),
        (
            {
                f"PERSYS_{kind}_ENABLED": "false"
                for kind in ("DOCKER", "COMPOSE", "VM", "FIRECRACKER")
            },
            "no runtime is enabled",
        ),
        ({"PERSYS_STORAGE_NFS_SERVER": "nas"}, "needs storage_nfs_export"),
        ({"PERSYS_TLS_CERT": "/etc/certs/"}, "names a folder"),
        ({"PERSYS_NODE_ID": "../x"}, "accepted is auto, or"),
        ({"PERSYS_GRPC_PORT": "70000"}, "a port from 1 to 65535"),
        ({"PERSYS_SCHEDULER_ADDR": "host:99999"}, "host:port"),
    ],
)
def test_settings_that_cannot_hold(tmp_path: Path, environment: dict[str, str], told: str) -> None:
    """What makes no sense, alone or together, ends the start and is said."""
    assert told in "\n".join(problems_of(tmp_path, **environment))


def test_secrets_are_hidden(tmp_path: Path) -> None:
    """Neither the settings' text nor an error shows a secret."""
    settings = load(tmp_path, PERSYS_VAULT_TOKEN="hvs.sesame")
    assert settings.vault_token == "hvs.sesame"
    assert "sesame" not in repr(settings)
    (problem,) = problems_of(tmp_path, PERSYS_SCHEDULER_ADDR="http://user:sesame@host")
    assert "sesame" not in problem


def test_what_is_read_but_not_used_can_be_told(tmp_path: Path) -> None:
    """Settings that wait for a later release are not silently without effect."""
    assert not_acted_on(load(tmp_path)) == ()
    assert not_acted_on(load(tmp_path, OTEL_SERVICE_NAME="x")) == ("otel_service_name",)


def test_unknown_variables_are_found() -> None:
    """A slip in a variable's name is found and the nearest named; others' are left alone."""
    environment = {
        "PERSYS_GRPC_PROT": "1", "PERSYS_SERVER": "s", "HOME": "/", "PERSYS_TLS_CA": "x",
        "PERSYS_RGW_ENDPOINT": "e", "PERSYS_FOO": "1", "PERSYS_USER": "ann",
    }  # fmt: skip
    assert dict(unknown_variables(environment)) == {
        "PERSYS_GRPC_PROT": "did you mean PERSYS_GRPC_PORT?",
        "PERSYS_FOO": "unset it",
        "PERSYS_USER": "unset it",
    }


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("unix:///run/user/1000/docker.sock", "unix:///run/user/1000/docker.sock"),
        ("tcp://10.0.0.5:2375", "tcp://10.0.0.5:2375"),
        ("tcp://[::1]:2375/", "tcp://[::1]:2375"),
    ],
)
def test_where_docker_may_listen(tmp_path: Path, given: str, kept: str) -> None:
    """A socket or a port."""
    assert load(tmp_path, DOCKER_HOST=given).docker_endpoint == kept


@pytest.mark.parametrize(
    "given",
    [
        *("ssh://root@host", "http://host:2375", "https://host:2376", "npipe:////./pipe/docker"),
        *("/var/run/docker.sock", "unix://docker.sock", "unix:///", "tcp://host", "tcp://:1", "x"),
    ],
)
def test_where_docker_cannot_be_reached(tmp_path: Path, given: str) -> None:
    """Refused when the agent starts, and not by the first container."""
    (problem,) = problems_of(tmp_path, DOCKER_HOST=given)
    assert problem.startswith(f"DOCKER_HOST: '{given}' is not valid; accepted is unix:///")
    assert "tcp://host:port" in problem


def test_a_relative_data_folder_is_one_error(tmp_path: Path) -> None:
    """The folders that follow it are not told again; one that is relative by itself is."""
    assert problems_of(tmp_path, PERSYS_AGENT_DATA_DIR="data") == (
        "agent_data_dir: 'data' is not absolute; begin it with /",
    )
    several = problems_of(tmp_path, PERSYS_AGENT_DATA_DIR="data", PERSYS_COMPOSE_ROOT="c")
    assert [each.split(":")[0] for each in several] == ["agent_data_dir", "compose_root"]
