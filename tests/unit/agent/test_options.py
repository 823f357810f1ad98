from __future__ import annotations

import pytest

from persys_agent.main import main
from persys_agent.options import (
    DoctorRun,
    NodeRun,
    RunOptions,
    TlsFiles,
    UsageError,
    parse_command,
    parse_options,
)
from persys_agent.runtimes.factory import RuntimeChoice
from persys_agent.settings import NodeSettings
from persys_core.model.states import WorkloadType

BASE = ("run", "--runtime", "simulated", "--insecure")


def parsed(*flags: str, **environment: str) -> RunOptions:
    return parse_options((*BASE, *flags), environment)


def test_the_defaults_make_one_plain_node() -> None:
    """One node on loopback, towards the scheduler's usual address."""
    options = parsed()
    assert (options.nodes, options.prefix, options.node_id) == (1, "sim", "")
    assert (options.scheduler, options.listen) == ("127.0.0.1:8085", "127.0.0.1")
    assert set(options.types) == {WorkloadType.CONTAINER, WorkloadType.COMPOSE, WorkloadType.VM}
    assert options.storage_drivers == {"local"}
    assert options.control_port is None
    assert options.tls is None


def test_flags_are_read() -> None:
    """Every flag reaches its option."""
    options = parsed(
        *"--nodes 7 --node-id-prefix lab --scheduler h:1 --listen 0.0.0.0 --cpu 5".split(),
        *"--memory 6 --disk 7 --latency 0.5 --failure-rate 0.25 --seed 9".split(),
        *"--types vm,container --storage-drivers NFS,ceph_rbd".split(),
        *"--labels zone=a,rack=b --control-port 0 --legacy --advertise here".split(),
    )
    assert (options.nodes, options.prefix, options.scheduler, options.seed) == (7, "lab", "h:1", 9)
    assert (options.cpu_millicores, options.memory_mb, options.disk_gb) == (5, 6, 7)
    assert (options.latency, options.failure_rate, options.control_port) == (0.5, 0.25, 0)
    assert options.types == (WorkloadType.VM, WorkloadType.CONTAINER)
    assert options.storage_drivers == {"local", "nfs", "ceph-rbd"}
    assert options.labels == {"zone": "a", "rack": "b"}
    assert (options.legacy, options.advertise, options.listen) == (True, "here", "0.0.0.0")


def test_standalone_nodes_have_no_scheduler() -> None:
    """They serve and register nowhere."""
    assert parsed("--standalone").scheduler == ""


def test_the_environment_gives_defaults() -> None:
    """The names are those of the agents in the field; broken label pairs are left out there."""
    options = parsed(
        PERSYS_SCHEDULER_ADDR="sched:9",
        PERSYS_NODE_ID="edge",
        PERSYS_NODE_LABELS="a=1,broken,=x,b=",
        PERSYS_NODE_REGION="eu",
        PERSYS_NODE_ENV="lab",
    )
    assert options.scheduler == "sched:9"
    assert options.node_id == "edge"
    assert options.labels == {"a": "1", "region": "eu", "env": "lab"}


def test_a_flag_wins_over_the_environment() -> None:
    """For the address as for labels."""
    options = parsed(
        *("--scheduler", "flag:1", "--labels", "a=2"),
        PERSYS_SCHEDULER_ADDR="env:1",
        PERSYS_NODE_LABELS="a=1,b=1",
    )
    assert options.scheduler == "flag:1"
    assert options.labels == {"a": "2", "b": "1"}


def test_several_nodes_take_the_environments_id_as_prefix() -> None:
    """Only a single node may have the id itself; `auto` counts as none."""
    several = parsed("--nodes", "2", PERSYS_NODE_ID="edge")
    assert (several.prefix, several.node_id) == ("edge", "")
    assert parsed(PERSYS_NODE_ID="auto").node_id == ""


def test_tls_needs_three_files_or_a_word_to_do_without() -> None:
    """All three, or --insecure, or PERSYS_SCHEDULER_INSECURE."""
    run = ("run", "--runtime", "simulated")
    files = ("--tls-ca", "ca", "--tls-cert", "cert", "--tls-key", "key")
    assert parse_options((*run, *files), {}).tls == TlsFiles("ca", "cert", "key")
    assert parse_options(run, {"PERSYS_SCHEDULER_INSECURE": "true"}).tls is None
    for wrong in (run, (*run, *files[:4]), (*run, *files, "--insecure")):
        with pytest.raises(UsageError):
            parse_options(wrong, {})


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--nodes 0", "--nodes whole 10000"),
        ("--nodes x", "--nodes whole"),
        ("--nodes 10001", "--nodes 10000"),
        ("--cpu -5", "--cpu"),
        ("--memory 1.5", "--memory whole"),
        ("--failure-rate 1.1", "--failure-rate 1"),
        ("--failure-rate nan", "--failure-rate number"),
        ("--latency inf", "--latency 3600"),
        ("--scheduler nowhere", "--scheduler HOST:PORT"),
        ("--scheduler h:70000", "--scheduler HOST:PORT"),
        ("--types pod", "--types microvm"),
        ("--types ,", "--types container"),
        ("--storage-drivers tape", "--storage-drivers nfs"),
        ("--storage-drivers ,", "--storage-drivers local"),
        ("--labels a", "--labels K=V"),
        ("--labels a=", "--labels K=V"),
        ("--control-port 70000", "--control-port 65535"),
        ("--node-id-prefix -x", "--node-id-prefix"),
        ("--node-id-prefix ä", "--node-id-prefix letter"),
        ("--runtime docker", "--runtime simulated"),
        ("--wrong", "--wrong --help"),
    ],
)
def test_a_wrong_flag_is_named_with_what_is_accepted(flags: str, words: str) -> None:
    """The text names the flag and what may stand there."""
    with pytest.raises(UsageError) as caught:
        parsed(*flags.split())
    for word in words.split():
        assert word in str(caught.value)


def test_a_wrong_environment_value_is_named() -> None:
    """The text names the variable and its value."""
    with pytest.raises(UsageError, match='PERSYS_SCHEDULER_INSECURE="perhaps"'):
        parse_options(("run", "--runtime", "simulated"), {"PERSYS_SCHEDULER_INSECURE": "perhaps"})


@pytest.mark.parametrize(
    "arguments", [(), ("run", "--nodes", "3"), (*BASE, "--nodes", "0"), ("walk",)]
)
def test_a_wrong_command_line_ends_with_three(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code of bad usage is 3, with one line on stderr and no traceback."""
    assert main(arguments) == 3
    text = capsys.readouterr().err
    assert text.startswith("persys-agent: ")
    assert text.count("\n") == 1


@pytest.mark.parametrize("arguments", [("--help",), ("run", "--help")])
def test_help_tells_flags_environment_and_an_example(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Help ends with 0 and mentions what a newcomer needs."""
    with pytest.raises(SystemExit) as caught:
        parse_options(arguments, {})
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert "PERSYS_NODE_LABELS" in text
    assert "example:" in text


REAL = ("run", "--insecure", "--data-dir", "/data")


def real(*flags: str, **environment: str) -> NodeSettings:
    """The settings of one real node."""
    found = parse_command((*REAL, *flags), environment)
    assert isinstance(found, NodeRun)
    return found.settings


def test_without_a_runtime_one_real_node_runs() -> None:
    """Flags are its settings, and win over the environment."""
    settings = real(
        *"--scheduler s:1 --listen 10.0.0.1 --port 7 --node-id n1 --labels a=b".split(),
        PERSYS_SCHEDULER_ADDR="other:2",
        PERSYS_CLUSTER_ID="c1",
    )
    assert (settings.scheduler_addr, settings.cluster_id) == ("s:1", "c1")
    assert (settings.grpc_addr, settings.grpc_port, settings.node_id) == ("10.0.0.1", 7, "n1")
    assert settings.node_labels == (("a", "b"),)
    assert (settings.tls_enabled, settings.scheduler_insecure) == (False, True)
    assert settings.state_store_path == "/data/state.db"


def test_the_environment_alone_is_enough() -> None:
    """A real node needs no flag."""
    found = parse_command(("run",), {"PERSYS_SCHEDULER_ADDR": "other:2", "HOME": "/nowhere"})
    assert isinstance(found, NodeRun)
    assert found.settings.scheduler_addr == "other:2"
    assert found.choice is RuntimeChoice.AUTO


@pytest.mark.parametrize("flags", ["--nodes 3", "--latency=2", "--legacy", "--control-port 0"])
def test_flags_of_simulated_nodes_are_for_them_only(flags: str) -> None:
    """A real node that ignored them would be a surprise."""
    with pytest.raises(UsageError, match="is for --runtime simulated only"):
        parse_command((*REAL, *flags.split()), {})


def test_a_wrong_setting_is_bad_usage() -> None:
    """The text is the settings' own."""
    with pytest.raises(UsageError, match="PERSYS_GRPC_PORT"):
        parse_command(REAL, {"PERSYS_GRPC_PORT": "many"})


def test_the_doctor_takes_the_flags_of_run() -> None:
    """So that it looks at what run would use."""
    found = parse_command(("doctor", "--json", *REAL[1:], "--port", "9"), {})
    assert isinstance(found, DoctorRun)
    assert found.as_json
    assert found.flags["grpc_port"] == "9"
    assert found.flags["agent_data_dir"] == "/data"
