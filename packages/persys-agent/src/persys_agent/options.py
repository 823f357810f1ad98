"""The command line of `persys-agent`, and the environment that gives its defaults.

Decided here: flags, their defaults and their checks (``option_values``). A flag wins over the
environment. A wrong value ends with ``UsageError``, whose text names the flag, the value and what
is accepted. Without ``--runtime simulated`` the flags are settings of one real node.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from persys_agent import option_values as values
from persys_agent.runtimes.factory import RuntimeChoice
from persys_agent.settings import NodeSettings, SettingsError, load_settings
from persys_core.model.states import WorkloadType
from persys_core.placement.demand import LOCAL_DRIVER

__all__ = [
    "DoctorRun",
    "NodeRun",
    "RunOptions",
    "TlsFiles",
    "UsageError",
    "parse_command",
    "parse_options",
]

_TRUE = ("1", "true", "yes", "on")
_FALSE = ("", "0", "false", "no", "off")
_DEFAULT_SCHEDULER = "127.0.0.1:8085"
_SIMULATED_TYPES = "container,compose,vm"
_SIMULATED = "simulated"
_ONLY_SIMULATED = (
    "nodes node-id-prefix cpu memory disk types storage-drivers latency failure-rate seed legacy"
    " control-port advertise"
).split()

_EPILOG = """\
environment (a flag wins):
  PERSYS_SCHEDULER_ADDR      as --scheduler
  PERSYS_SCHEDULER_INSECURE  as --insecure (true or false)
  PERSYS_NODE_ID             the node's id; with several nodes, their prefix
  PERSYS_NODE_LABELS         as --labels
  PERSYS_NODE_REGION, PERSYS_NODE_ENV
                             the labels region and env

words in an image's name make a simulated workload misbehave:
  missing (no such image), flaky, slow, crash, exit0 or job, nostart, outofcpu, refuse

example:
  persys-agent run --runtime simulated --nodes 5 --insecure --control-port 9090
  curl -X POST http://127.0.0.1:9090/nodes/sim-2/kill
"""


class UsageError(Exception):
    """A command line that makes no sense."""


@dataclass(frozen=True)
class TlsFiles:
    """Paths of PEM files: the trust bundle, and this agent's certificate and key."""

    ca: str
    cert: str
    key: str


@dataclass(frozen=True)
class RunOptions:
    """`persys-agent run`, checked. ``tls`` is ``None`` with --insecure."""

    nodes: int
    prefix: str
    node_id: str
    scheduler: str
    listen: str
    advertise: str
    cpu_millicores: int
    memory_mb: int
    disk_gb: int
    types: tuple[WorkloadType, ...]
    storage_drivers: frozenset[str]
    labels: Mapping[str, str]
    latency: float
    failure_rate: float
    seed: int | None
    legacy: bool
    control_port: int | None
    tls: TlsFiles | None


@dataclass(frozen=True)
class NodeRun:
    """`persys-agent run` of one real node."""

    settings: NodeSettings
    choice: RuntimeChoice


@dataclass(frozen=True)
class DoctorRun:
    """`persys-agent doctor`. ``flags`` are texts by the settings' keys."""

    flags: Mapping[str, str]
    config: str
    as_json: bool
    is_verbose: bool = False


def parse_command(
    arguments: Sequence[str], environment: Mapping[str, str]
) -> RunOptions | NodeRun | DoctorRun:
    """Read the command line. Raises ``UsageError``; ends the process for --help and --version."""
    given = _parser(environment).parse_args(arguments)
    if given.command is None:
        raise UsageError("no command; try `persys-agent run --runtime simulated --insecure`")
    if given.command == "doctor":
        return DoctorRun(_setting_flags(given), given.config, given.json, given.verbose)
    if given.runtime == _SIMULATED:
        return _simulated(given, environment)
    if wrong := [flag for flag in _ONLY_SIMULATED if f"--{flag}" in _names(arguments)]:
        raise UsageError(f"--{wrong[0]} is for --runtime simulated only")
    try:
        settings = load_settings(environment, flags=_setting_flags(given), config=given.config)
    except SettingsError as error:
        raise UsageError(str(error)) from error
    return NodeRun(settings, RuntimeChoice(given.runtime))


def parse_options(arguments: Sequence[str], environment: Mapping[str, str]) -> RunOptions:
    """Read the command line of a simulated fleet. Raises ``UsageError``."""
    options = parse_command(arguments, environment)
    if not isinstance(options, RunOptions):
        raise UsageError("this takes --runtime simulated")
    return options


def _names(arguments: Sequence[str]) -> set[str]:
    return {each.partition("=")[0] for each in arguments}


def _setting_flags(given: argparse.Namespace) -> dict[str, str]:
    """The flags of a real node as texts of its settings; what is not given is left out."""
    flags = {
        "scheduler_addr": given.scheduler or "",
        "grpc_addr": given.listen,
        "grpc_port": given.port,
        "node_id": given.node_id,
        "state_store_path": given.state,
        "agent_data_dir": given.data_dir,
        "tls_ca_path": given.tls_ca,
        "tls_cert_path": given.tls_cert,
        "tls_key_path": given.tls_key,
        "node_labels": ",".join(f"{key}={value}" for key, value in given.labels.items()),
    }
    if given.standalone:
        flags["standalone"] = "true"
    if given.insecure:
        flags |= {"tls_enabled": "false", "scheduler_insecure": "true"}
    return {key: text for key, text in flags.items() if text}


def _simulated(given: argparse.Namespace, environment: Mapping[str, str]) -> RunOptions:
    scheduler = given.scheduler or _default_scheduler(environment)
    env_id = environment.get("PERSYS_NODE_ID", "")
    node_id = "" if env_id == "auto" else env_id
    alone = given.nodes == 1 and not given.node_id_prefix
    return RunOptions(
        nodes=given.nodes,
        prefix=given.node_id_prefix or node_id or "sim",
        node_id=node_id if alone else "",
        scheduler="" if given.standalone else scheduler,
        listen=given.listen or "127.0.0.1",
        advertise=given.advertise,
        cpu_millicores=given.cpu,
        memory_mb=given.memory,
        disk_gb=given.disk,
        types=given.types,
        storage_drivers=given.storage_drivers,
        labels={**values.labels_of(environment), **given.labels},
        latency=given.latency,
        failure_rate=given.failure_rate,
        seed=given.seed,
        legacy=given.legacy,
        control_port=given.control_port,
        tls=_tls(given, environment),
    )


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see `{self.prog} --help`")


def _parser(environment: Mapping[str, str]) -> _Parser:
    parser = _Parser(
        prog="persys-agent",
        description="The Persys compute agent.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_EPILOG,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version="persys-agent 0.1.0")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    doctor = commands.add_parser(
        "doctor",
        help="look at everything that run needs",
        description="Look at everything that run needs, with the same settings; changes nothing.",
        allow_abbrev=False,
    )
    doctor.add_argument("--json", action="store_true", help="the findings as JSON")
    doctor.add_argument(
        "-v", "--verbose", action="store_true", help="log the commands that are run, to stderr"
    )
    _add_setting_flags(doctor)
    _add_address_flags(doctor, environment)
    doctor.add_argument("--labels", type=values.labels, default={}, help=argparse.SUPPRESS)
    run = commands.add_parser(
        "run",
        help="run one or many nodes until SIGTERM or SIGINT",
        description="Run one or many nodes until SIGTERM or SIGINT.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_EPILOG,
        allow_abbrev=False,
    )
    _add_real_flags(run)
    _add_cluster_flags(run, environment)
    _add_node_flags(run)
    _add_simulation_flags(run)
    return parser


def _default_scheduler(environment: Mapping[str, str]) -> str:
    return environment.get("PERSYS_SCHEDULER_ADDR", "") or _DEFAULT_SCHEDULER


def _add_real_flags(run: argparse.ArgumentParser) -> None:
    run.add_argument(
        "--runtime",
        choices=(*map(str, RuntimeChoice), _SIMULATED),
        default=str(RuntimeChoice.AUTO),
        help="what runs the workloads: auto is what the settings switch on and this machine has;"
        " memory runs nothing, for tests; simulated is a fleet of nodes that use no resources"
        " (default: auto)",
    )
    _add_setting_flags(run)


def _add_setting_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("one real node (see docs/agent.md for all settings)")
    group.add_argument("--config", metavar="PATH", default="", help="settings file (YAML)")
    group.add_argument("--node-id", metavar="ID", default="", help="the setting node_id")
    group.add_argument("--port", metavar="P", default="", help="the setting grpc_port")
    group.add_argument("--state", metavar="PATH", default="", help="the setting state_store_path")
    group.add_argument("--data-dir", metavar="PATH", default="", help="the setting agent_data_dir")


def _add_cluster_flags(run: argparse.ArgumentParser, environment: Mapping[str, str]) -> None:
    group = _add_address_flags(run, environment)
    group.add_argument(
        "--advertise",
        metavar="HOST",
        default="",
        help="host that the scheduler is told (default: that of --listen, or this machine's"
        " address towards the scheduler where --listen is 0.0.0.0 or ::)",
    )


def _add_address_flags(
    parser: argparse.ArgumentParser, environment: Mapping[str, str]
) -> argparse._ArgumentGroup:
    group = parser.add_argument_group("cluster")
    group.add_argument(
        "--scheduler",
        metavar="HOST:PORT",
        type=values.address,
        default=None,
        help=f"where the scheduler listens (default: {_default_scheduler(environment)})",
    )
    group.add_argument(
        "--standalone", action="store_true", help="serve only: no registration, no heartbeats"
    )
    group.add_argument("--insecure", action="store_true", help="no TLS, in either direction")
    group.add_argument("--tls-ca", metavar="PATH", default="", help="trust bundle (PEM)")
    group.add_argument("--tls-cert", metavar="PATH", default="", help="certificate (PEM)")
    group.add_argument("--tls-key", metavar="PATH", default="", help="private key (PEM)")
    group.add_argument(
        "--listen",
        metavar="HOST",
        default="",
        help="address to listen on (default: 127.0.0.1 for simulated nodes, each at a port of its"
        " own; else the setting grpc_addr)",
    )
    return group


def _add_node_flags(run: argparse.ArgumentParser) -> None:
    group = run.add_argument_group("nodes")
    group.add_argument(
        "--nodes",
        metavar="N",
        type=values.whole(1, values.MAX_NODES),
        default=1,
        help="how many (default: 1)",
    )
    group.add_argument(
        "--node-id-prefix",
        metavar="TEXT",
        type=values.node_id,
        help="nodes are called TEXT-1, TEXT-2 … (default: sim)",
    )
    group.add_argument(
        "--cpu", metavar="MILLICORES", type=values.whole(1, 10**8), default=16_000, help="per node"
    )
    group.add_argument("--memory", metavar="MB", type=values.whole(1, 10**10), default=65_536)
    group.add_argument("--disk", metavar="GB", type=values.whole(1, 10**9), default=200)
    group.add_argument(
        "--types",
        metavar="LIST",
        type=values.types,
        default=values.types(_SIMULATED_TYPES),
        help=f"workload types that the nodes can run (default: {_SIMULATED_TYPES})",
    )
    group.add_argument(
        "--storage-drivers",
        metavar="LIST",
        type=values.drivers,
        default=values.drivers(LOCAL_DRIVER),
        help=f"drivers of managed volumes that nodes have, of {', '.join(values.DRIVERS)}; every"
        f" node has {LOCAL_DRIVER} (default: {LOCAL_DRIVER})",
    )
    group.add_argument(
        "--labels", metavar="K=V,…", type=values.labels, default={}, help="labels of every node"
    )


def _add_simulation_flags(run: argparse.ArgumentParser) -> None:
    group = run.add_argument_group("simulation")
    group.add_argument(
        "--latency",
        metavar="SECONDS",
        type=values.number(0, 3600),
        default=1.0,
        help="how long a creation takes on average (default: 1)",
    )
    group.add_argument(
        "--failure-rate",
        metavar="P",
        type=values.number(0, 1),
        default=0.0,
        help="share of creations that fail, 0 to 1 (default: 0)",
    )
    group.add_argument(
        "--seed",
        metavar="N",
        type=values.whole(0, 2**63 - 1),
        default=None,
        help="makes chance repeat (default: a new one each time)",
    )
    group.add_argument(
        "--legacy",
        action="store_true",
        help="behave as the agents in the field: no boot id, masked failures, tasks in any order",
    )
    group.add_argument(
        "--control-port",
        metavar="P",
        type=values.whole(0, 65535),
        default=None,
        help="HTTP interface on 127.0.0.1 to kill, pause and revive nodes; 0 chooses a port"
        " (default: none)",
    )


def _tls(given: argparse.Namespace, environment: Mapping[str, str]) -> TlsFiles | None:
    files = TlsFiles(given.tls_ca, given.tls_cert, given.tls_key)
    complete = all((files.ca, files.cert, files.key))
    if given.insecure and any((files.ca, files.cert, files.key)):
        raise UsageError("--insecure and --tls-* exclude each other; leave one of them out")
    if complete:
        return files
    if any((files.ca, files.cert, files.key)):
        raise UsageError("--tls-ca, --tls-cert and --tls-key belong together; give all three")
    if given.insecure or _environment_flag(environment, "PERSYS_SCHEDULER_INSECURE"):
        return None
    raise UsageError(
        "TLS needs certificates: give --tls-ca, --tls-cert and --tls-key, or --insecure to go"
        " without"
    )


def _environment_flag(environment: Mapping[str, str], name: str) -> bool:
    text = environment.get(name, "").strip().lower()
    if text not in _TRUE + _FALSE:
        raise UsageError(f'{name}="{environment[name]}": accepted are true and false')
    return text in _TRUE
