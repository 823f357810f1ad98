"""Every developer command, run in the project's own environment: `./dev nox -s <name>`.

Nothing is installed here, `./dev` has done that; only the generators of the protos, whose pinned
versions are older than what we run on, get an environment of their own. Arguments after `--` go to
the command that a session runs.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from logging import CRITICAL, getLogger
from pathlib import Path

import nox

nox.options.default_venv_backend = "none"
nox.options.sessions = ["quick"]

PYTHON = sys.executable
PROTOS = "tools/generate_protos.py"
GENERATORS_END = (3, 13)  # the pinned generators have no wheels from this Python on
TESTS = "pytest"
NO_TESTS = 5
"""How pytest ends where a half has none of the tests that were asked for."""
ALL_TESTS_WORKERS = 4
"""Two more than the cores that are expected: tests on real servers mostly wait."""

# What `--system` promises to have: a test that skips for want of one of these fails instead.
# etcd and redis come with requirements-dev.txt, the others are in tools/debian-packages.txt.
SYSTEM_SERVICES: tuple[str, ...] = (
    "docker-compose",
    "dockerd",
    "etcd",
    "haproxy",
    "libvirtd",
    "prometheus",
    "redis",
    "redis-server",
)


# Which suites run on servers of the user's own.
OWN_SERVERS: Mapping[str, Sequence[str]] = {
    "--etcd": (
        "tests/contract/test_cluster_store_etcd.py::TestEtcdClusterStore",
        "tests/contract/test_liveness_etcd.py::TestEtcdLiveness",
        "tests/contract/test_membership_etcd.py",
    ),
    "--redis": ("tests/contract/test_small_ports_redis.py",),
}


# The suites of the scheduler that have agents; what cannot run on Docker says so and is skipped.
AGENT_SUITES: tuple[str, ...] = (
    "tests/contract/test_agents_grpc.py",
    "tests/e2e/test_crash.py",
    "tests/e2e/test_elastic.py",
    "tests/e2e/test_etcd.py",
    "tests/e2e/test_foreign.py",
    "tests/e2e/test_node_operations.py",
    "tests/e2e/test_planning.py",
    "tests/e2e/test_pressure.py",
    "tests/e2e/test_prometheus.py",
    "tests/e2e/test_recovery.py",
    "tests/e2e/test_redis.py",
    "tests/e2e/test_redis_outages.py",
    "tests/e2e/test_standing.py",
    "tests/e2e/test_take_over.py",
    "tests/e2e/test_tracing.py",
    "tests/e2e/test_volumes.py",
)


@dataclass(frozen=True)
class Check:
    """A command with the name that it is reported under."""

    name: str
    command: tuple[str, ...]


LINT = (
    Check("ruff check", (PYTHON, "-m", "ruff", "check", ".")),
    Check("ruff format", (PYTHON, "-m", "ruff", "format", "--check", ".")),
)
TYPES = (Check("mypy", (PYTHON, "-m", "mypy")),)
PROTOC = (Check("protos", (PYTHON, "-m", "nox", "-s", "protos")),)


def pytest_check(*arguments: str, workers: int = 2) -> Check:
    """Return pytest as a check, on that many workers."""
    # Not reordered: modules of few but long tests would come last, and the other workers wait.
    parallel = ("-n", str(workers), "--dist", "loadscope", "--no-loadscope-reorder")
    return Check("pytest", (PYTHON, "-m", "pytest", "-q", *parallel, *arguments))


def pytest_halves(folders: Sequence[str], *arguments: str) -> list[Check]:
    """Return pytest as two checks of about the same size, for one core each.

    Thousands of tests that take no time cost less so than their reports between workers do.
    """
    halves: list[tuple[int, list[str]]] = [(0, []), (0, [])]
    files = [path for folder in folders for path in Path(folder).rglob("test_*.py")]
    for weight, path in sorted(((_weight(each), each) for each in files), reverse=True):
        size, half = min(halves, key=lambda each: each[0])
        halves[halves.index((size, half))] = (size + weight, [*half, str(path)])
    command = (PYTHON, "-m", "pytest", "-q", *arguments)
    return [
        Check(f"{TESTS} {number}", (*command, *sorted(half)))
        for number, (_, half) in enumerate(halves, 1)
    ]


def _weight(path: Path) -> int:
    """About how long a module's quick tests take: its size, and nothing where all are slow."""
    text = path.read_text()
    return 0 if re.search(r"^pytestmark = .*\bslow\b", text, re.MULTILINE) else len(text)


def run_together(checks: Sequence[Check]) -> list[str]:
    """Run independent checks at once, report each as it ends, and name those that failed.

    The output of a check is shown whole and only if there is reason to: it failed, or it is a test
    run. Test runs are shown last.
    """
    began = time.monotonic()
    failed: list[str] = []
    test_output = ""
    with ThreadPoolExecutor(len(checks)) as pool:
        futures = {pool.submit(_run_captured, check): check for check in checks}
        for future in as_completed(futures):
            check, (code, output) = futures[future], future.result()
            if code and not (code == NO_TESTS and check.name.startswith(TESTS)):
                failed.append(check.name)
            if check.name.startswith(TESTS):
                test_output += output
                continue
            print(f"{check.name}: {'FAILED' if code else 'ok'}, {time.monotonic() - began:.1f} s")
            if code:
                print(output, flush=True)
    print(test_output, end="", flush=True)
    return failed


def _run_captured(check: Check) -> tuple[int, str]:
    result = subprocess.run(
        check.command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return result.returncode, result.stdout


def finish(session: nox.Session, failed: Sequence[str]) -> None:
    """End the session: in failure with what failed, in success with the tests' words as the last.

    Whoever counts tests reads the closing lines, so nox's own "was successful" is left out.
    """
    if failed:
        session.error(f"failed: {', '.join(failed)} (see above)")
    getLogger("nox").setLevel(CRITICAL)


def run_module(session: nox.Session, *command: str, env: Mapping[str, str] | None = None) -> None:
    """Run a module or a script with the Python of the environment."""
    session.run(PYTHON, *command, env=dict(env or {}), external=True)


@nox.session
def quick(session: nox.Session) -> None:
    """Lint, types, unit and architecture tests but for slow ones, all at once; below 40 seconds."""
    tests = pytest_halves(("tests/unit", "tests/architecture"), "-m", "not slow", *session.posargs)
    finish(session, run_together([*LINT, *TYPES, *tests]))


@nox.session
def tests(session: nox.Session) -> None:
    """Every check and every test. `--system`: what the system packages give may not be skipped."""
    arguments = [argument for argument in session.posargs if argument != "--system"]
    environment = dict(os.environ)
    if "--system" in session.posargs and SYSTEM_SERVICES:
        environment["PERSYS_REQUIRE"] = ",".join(SYSTEM_SERVICES)
    generators = PROTOC if sys.version_info < GENERATORS_END else ()
    failed = run_together([*LINT, *TYPES, *generators])
    command = pytest_check("tests", *arguments, workers=ALL_TESTS_WORKERS).command
    if subprocess.run(command, env=environment, check=False).returncode:
        failed.append("pytest")
    finish(session, failed)


@nox.session
def lint(session: nox.Session) -> None:
    """Style and likely mistakes; `-- --fix` mends what can be mended."""
    if "--fix" in session.posargs:
        run_module(session, "-m", "ruff", "check", "--fix", ".")
        run_module(session, "-m", "ruff", "format", ".")
        return
    finish(session, run_together(LINT))


@nox.session
def types(session: nox.Session) -> None:
    """The type checker, over every package, the tests and the tools."""
    run_module(session, "-m", "mypy", *session.posargs)


@nox.session
def unit(session: nox.Session) -> None:
    """The unit tests."""
    run_module(session, "-m", "pytest", "tests/unit", *session.posargs)


@nox.session
def contract(session: nox.Session) -> None:
    """The contract suites, on every implementation that can be started here.

    `-- --etcd HOST:PORT` (`--redis URL`) runs those of etcd (of Redis) on a server of your own,
    under a prefix of their own.
    """
    own = [paths for option, paths in OWN_SERVERS.items() if option in session.posargs]
    wanted = [path for paths in own for path in paths] or ["tests/contract"]
    run_module(session, "-m", "pytest", *wanted, *session.posargs)


@nox.session(name="docker-suites")
def docker_suites(session: nox.Session) -> None:
    """The scheduler's suites with real agents, whose workloads are containers on Docker."""
    command = pytest_check("--agents=docker", *AGENT_SUITES, *session.posargs).command
    session.run(*command, env={"PERSYS_REQUIRE": "dockerd"}, external=True)


@nox.session
def sim(session: nox.Session) -> None:
    """Simulated clusters with faults; a failure prints the seed that replays it."""
    run_module(session, "-m", "persys_core.sim", *session.posargs)


@nox.session
def proofs(session: nox.Session) -> None:
    """What takes too long for the tests, at full size; fails where anything does not hold."""
    run_module(session, "-m", "proofs", *session.posargs)


@nox.session
def chaos(session: nox.Session) -> None:
    """Real processes killed, stopped and cut off, `-- --minutes 10 --seed N`; the safety rules."""
    run_module(session, "-m", "proofs.chaos", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """The benchmarks, as lines of `name value unit`."""
    run_module(session, "-m", "benchmarks", *session.posargs)


@nox.session(venv_backend="virtualenv", reuse_venv=True)
def protos(session: nox.Session) -> None:
    """Compare the generated code with the protos; `-- --write` generates it anew."""
    session.install(*nox.project.load_toml(PROTOS)["dependencies"])
    session.run("python", PROTOS, *(session.posargs or ["--check"]))


@nox.session
def docs(session: nox.Session) -> None:
    """Compare the generated pages with their sources; `-- --write` generates them anew."""
    generators = {path.as_posix() for path in Path("tools").glob("generate_*.py")} - {PROTOS}
    for generator in sorted(generators):
        run_module(session, generator, *(session.posargs or ["--check"]))


@nox.session
def wheels(session: nox.Session) -> None:
    """Build the wheels into dist/ and try the core alone in a fresh environment."""
    run_module(session, "tools/check_wheels.py")


@nox.session
def constraints(session: nox.Session) -> None:
    """Renew constraints.txt with the newest versions that the bounds allow."""
    run_module(session, "tools/renew_constraints.py")
