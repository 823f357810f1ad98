"""Python's cyclic garbage collector, kept off what a replica loads at its start.

Decided here: that nothing is collected while the view is loaded, since every record is there to
stay and each pass would walk over all of them, and that what is there by then is passed over for
good. A record that goes is still freed at once: only cycles need the collector.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["loading"]


@contextmanager
def loading() -> Iterator[None]:
    """Collect nothing inside, and afterwards only what came later; a nested one does nothing."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
