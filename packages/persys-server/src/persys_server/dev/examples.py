"""The specifications that a demonstration applies: those of a folder, or the ones shipped with us.

Not decided here: their format, which is the command line client's.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from persys_proto.control.v1 import control_pb2 as pb
from persysctl.manifest import ManifestError, load_files

__all__ = ["SHIPPED", "ManifestError", "requests_in"]

SHIPPED = Path(__file__).parent / "examples"
"""A copy of the repository's ``examples/``, so that an installed server has them too."""


def requests_in(folder: Path | None) -> Sequence[pb.ApplyWorkloadRequest]:
    """One request per workload, in the order of the files. Raises ``ManifestError``."""
    return [loaded.request for loaded in load_files([folder or SHIPPED])]
