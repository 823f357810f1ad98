"""What holds for every test: how hypothesis runs, and that no test leaves its logging behind."""

from collections.abc import Iterator

import pytest
import structlog
from hypothesis import is_hypothesis_test, settings

# Machines are noisy: no example fails for being slow.
settings.register_profile("persys", deadline=None, print_blob=True)
settings.load_profile("persys")

# pytest-timeout raises wherever the test just is. Within hypothesis that is mistaken for a failure
# of the example being drawn, and reported as flaky data, not as a timeout. So its tests get more
# than the five minutes that hypothesis itself allows for shrinking a real failure.
_HYPOTHESIS_SECONDS = 900


def pytest_addoption(parser: pytest.Parser) -> None:
    """Servers of the user's own for the contract suites, instead of those that tests start."""
    group = parser.getgroup("persys", "servers of your own for the contract suites")
    group.addoption("--etcd", default="", metavar="HOST:PORT,…", help="endpoints of an etcd")
    group.addoption("--redis", default="", metavar="URL", help="redis://host:port/db")


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
