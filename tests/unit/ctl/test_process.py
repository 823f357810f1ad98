"""persysctl as a process: what its two streams are left with, whatever becomes of their readers."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

_PERSYSCTL = (sys.executable, "-m", "persysctl")
_NOBODY = ("--server", "127.0.0.1:1", "--insecure", "--timeout", "5s")


def _environment(**more: str) -> dict[str, str]:
    foreign = ("PERSYS_", "GRPC_")
    own = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
    return own | more


@pytest.mark.parametrize("argv", ["version", "--help", "list --help"])
def test_a_reader_that_went_away_is_no_matter(argv: str) -> None:
    """As in `persysctl list workloads | head -1`: no traceback and no complaint at the end."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = subprocess.run(
            [*_PERSYSCTL, *argv.split()],
            stdout=writer,
            stderr=subprocess.PIPE,
            env=_environment(),
            timeout=60,
            check=False,
        )
    finally:
        os.close(writer)
    assert ended.stderr == b""
    assert ended.returncode in (0, 1)


@pytest.mark.parametrize("verbosity", ["", "INFO"])
def test_the_library_writes_only_where_it_was_asked_to(verbosity: str) -> None:
    """What gRPC logs is for those who set its variable; errors of ours say what people need."""
    more = {"GRPC_VERBOSITY": verbosity} if verbosity else {}
    ended = subprocess.run(
        [*_PERSYSCTL, *_NOBODY, "list", "nodes"],
        capture_output=True,
        text=True,
        env=_environment(**more),
        timeout=60,
        check=False,
    )
    assert ended.returncode == 3
    ours = [line for line in ended.stderr.splitlines() if ".cc:" not in line]
    assert ours[0].startswith("error: no scheduler at 127.0.0.1:1 ")
    assert (ended.stderr.splitlines() == ours) == (not verbosity)
