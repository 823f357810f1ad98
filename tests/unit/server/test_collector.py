"""The collector leaves alone what was loaded."""

import gc
from collections.abc import Iterator

import pytest

from persys_server.collector import loading


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Nothing stays frozen behind a test."""
    yield
    gc.unfreeze()
    gc.enable()


def test_what_is_loaded_is_passed_over_from_then_on() -> None:
    """Inside nothing is collected; afterwards the records are no work for it any more."""
    frozen = gc.get_freeze_count()
    with loading():
        assert not gc.isenabled()
        records = [[number] for number in range(1000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() >= frozen + len(records)


def test_a_load_that_fails_leaves_the_collector_on() -> None:
    """Whatever was loaded by then."""
    with pytest.raises(OSError, match="gone"), loading():
        raise OSError("gone")
    assert gc.isenabled()


def test_who_turned_it_off_finds_it_off() -> None:
    """It is not ours to turn on then."""
    gc.disable()
    with loading():
        pass
    assert not gc.isenabled()
