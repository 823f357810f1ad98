"""Every error of the etcd client becomes one that the store's port promises."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from persys_adapters.etcd.client import (
    AmbiguousWriteError,
    CompactedError,
    EtcdError,
    NoSpaceError,
    TooLargeError,
)
from persys_adapters.etcd.errors import translated
from persys_core.ports.cluster_store import (
    AmbiguousCommitError,
    CommitTooLargeError,
    StoreFullError,
    StoreUnavailableError,
)


def every(kind: type[EtcdError]) -> Iterator[type[EtcdError]]:
    """The class and all below it."""
    yield kind
    for below in kind.__subclasses__():
        yield from every(below)


@pytest.mark.parametrize("kind", sorted(set(every(EtcdError)), key=str))
def test_whatever_the_client_says_is_known_to_the_port(kind: type[EtcdError]) -> None:
    """L03: nothing but a request that is too large is anything else than a store that is away, so
    that no unfamiliar error of etcd ends a loop."""
    wanted = CommitTooLargeError if kind is TooLargeError else StoreUnavailableError
    with pytest.raises(wanted) as caught, translated():
        raise kind("what etcd said", endpoint="127.0.0.1:1")
    assert "what etcd said" in str(caught.value)
    assert isinstance(caught.value.__cause__, kind)


def test_a_write_of_which_nobody_knows_is_found_out() -> None:
    """E06: it is ambiguous, not failed."""
    with pytest.raises(AmbiguousCommitError), translated():
        raise AmbiguousWriteError("no answer", maybe_applied=True)


@pytest.mark.parametrize("maybe_applied", [False, True])
def test_no_space_is_told_as_that(maybe_applied: bool) -> None:
    """E05; the write that crosses the quota may have been done all the same."""
    with pytest.raises(StoreFullError) as caught, translated():
        raise NoSpaceError("database space exceeded", maybe_applied=maybe_applied)
    assert isinstance(caught.value, AmbiguousCommitError) is maybe_applied


def test_a_read_that_may_not_be_repeated_is_not_invented() -> None:
    """Compaction says nothing of a write."""
    with pytest.raises(StoreUnavailableError) as caught, translated():
        raise CompactedError("compacted")
    assert not isinstance(caught.value, AmbiguousCommitError)
