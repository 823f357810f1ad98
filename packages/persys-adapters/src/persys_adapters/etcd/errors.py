"""What the etcd client says, in the words of the ports."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from persys_adapters.etcd.client import (
    AmbiguousWriteError,
    EtcdError,
    NoSpaceError,
    TooLargeError,
)
from persys_core.ports.cluster_store import (
    AmbiguousCommitError,
    CommitTooLargeError,
    StoreFullError,
    StoreUnavailableError,
)

__all__ = ["translated"]


class _FullOrDoneError(AmbiguousCommitError, StoreFullError):
    """The write that crosses the quota is told so although it was done."""


@contextmanager
def translated() -> Iterator[None]:
    """Errors of the client leave the block as those that the store's port promises."""
    try:
        yield
    except NoSpaceError as error:
        kind = _FullOrDoneError if error.maybe_applied else StoreFullError
        raise kind(f"out of space: {error}; or raise the quota") from error
    except TooLargeError as error:
        raise CommitTooLargeError(str(error)) from error
    except AmbiguousWriteError as error:
        raise AmbiguousCommitError(str(error)) from error
    except EtcdError as error:
        raise StoreUnavailableError(str(error)) from error
