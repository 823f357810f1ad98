"""What holds for every test: how hypothesis runs, and that no test leaves its logging behind."""

from collections.abc import Iterator

import pytest
import structlog
from hypothesis import settings

# Machines are noisy: no example fails for being slow.
settings.register_profile("persys", deadline=None, print_blob=True)
settings.load_profile("persys")


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    """A command under test configures logging for its process, onto a stream that is closed when
    the test ends; the next test must not write there."""
    yield
    structlog.reset_defaults()
