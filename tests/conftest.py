"""What holds for every test: how hypothesis runs, what its agents are, and that no test leaves its
logging behind."""

from collections.abc import Iterator

import pytest
import structlog
from hypothesis import is_hypothesis_test, settings

from tests.fleets.choice import CHOSEN, AgentChoice

# Machines are noisy: no example fails for being slow.
settings.register_profile("persys", deadline=None, print_blob=True)
settings.load_profile("persys")

# What also runs on Docker in the usual run; `nox -s docker-suites` runs everything that can.
DOCKER_TOO = frozenset({"tests.contract.test_agents_grpc", "tests.e2e.test_node_operations"})

_ONLY_SIMULATED = "simulated agents only"

# pytest-timeout raises wherever the test just is. Within hypothesis that is mistaken for a failure
# of the example being drawn, and reported as flaky data, not as a timeout. So its tests get more
# than the five minutes that hypothesis itself allows for shrinking a real failure.
_HYPOTHESIS_SECONDS = 900


def pytest_addoption(parser: pytest.Parser) -> None:
    """Servers of the user's own for the contract suites, instead of those that tests start."""
    group = parser.getgroup("persys", "servers of your own for the contract suites")
    group.addoption("--etcd", default="", metavar="HOST:PORT,…", help="endpoints of an etcd")
    group.addoption("--redis", default="", metavar="URL", help="redis://host:port/db")
    parser.getgroup("persys-agents", "agents of the scheduler's suites").addoption(
        "--agents",
        choices=tuple(AgentChoice),
        help="simulated, or real ones with containers on Docker (default: simulated, and both for"
        " the modules in DOCKER_TOO)",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Without a choice, some modules run with both kinds of agents."""
    if metafunc.config.getoption("--agents") or metafunc.module.__name__ not in DOCKER_TOO:
        return
    only = metafunc.definition.get_closest_marker("simulated") is not None
    choices = (AgentChoice.SIMULATED,) if only else tuple(AgentChoice)
    metafunc.parametrize("_agents", choices, indirect=True, scope="module")


@pytest.fixture(autouse=True, scope="module")
def _agents(request: pytest.FixtureRequest) -> Iterator[AgentChoice]:
    """What the agents of the test are."""
    chosen = request.config.getoption("--agents") or AgentChoice.SIMULATED
    CHOSEN.agents = AgentChoice(getattr(request, "param", chosen))
    yield CHOSEN.agents
    CHOSEN.agents = AgentChoice.SIMULATED


@pytest.fixture(autouse=True)
def _only_simulated(request: pytest.FixtureRequest, _agents: AgentChoice) -> None:
    """Skip what real agents cannot do."""
    mark = request.node.get_closest_marker("simulated")
    if mark is not None and _agents is AgentChoice.DOCKER:
        pytest.skip(f"{_ONLY_SIMULATED}: {mark.args[0]}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many tests real agents were spared."""
    skipped = terminalreporter.stats.get("skipped", ())
    count = sum(_ONLY_SIMULATED in str(each.longrepr) for each in skipped)
    if count:
        terminalreporter.write_line(f"{count} tests are for simulated agents only")


def pytest_unconfigure() -> None:
    """The daemons that were started for the agents end with the tests."""
    CHOSEN.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give every hypothesis test that names no time limit of its own a long one."""
    for item in items:
        is_drawn = is_hypothesis_test(getattr(item, "obj", None))
        if is_drawn and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_HYPOTHESIS_SECONDS))


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    """A command under test configures logging for its process, onto a stream that is closed when
    the test ends; the next test must not write there."""
    yield
    structlog.reset_defaults()
