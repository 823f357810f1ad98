"""Whose a container is, by its labels alone."""

from __future__ import annotations

import pytest
from attrs import evolve

from persys_agent.runtimes.docker.labels import (
    Ownership,
    checked_id,
    owner_labels,
    ownership,
    refusal,
)
from persys_agent.runtimes.port import FailureCode, Owner, RuntimeFailedError

OWNER = Owner("n", "c")
OURS = owner_labels(OWNER, "w", "docker")
UNMARKED = {"persys.managed": "true", "persys.workload_id": "w"}


@pytest.mark.parametrize(
    ("labels", "whose"),
    [
        (OURS, Ownership.OURS),
        (owner_labels(evolve(OWNER, node_id="m"), "w", "docker"), Ownership.FOREIGN),
        (owner_labels(evolve(OWNER, cluster_id=""), "w", "docker"), Ownership.FOREIGN),
        (owner_labels(OWNER, "v", "docker"), Ownership.FOREIGN),
        (owner_labels(OWNER, "w", "compose"), Ownership.FOREIGN),
        (UNMARKED, Ownership.UNMARKED),
        ({**UNMARKED, "persys.workload_id": "v"}, Ownership.FOREIGN),
        ({**OURS, "persys.managed": "false"}, Ownership.FOREIGN),
        ({}, Ownership.FOREIGN),
    ],
)
def test_ownership(labels: dict[str, str], whose: Ownership) -> None:
    """Ours is what has all of our marks; without a node it may be taken over (defect 3)."""
    assert ownership(labels, OWNER, "w", "docker") is whose


def test_a_refusal_names_the_holder() -> None:
    """Who asks for a taken name learns who has it."""
    told = refusal("w", owner_labels(Owner("m", "d"), "w", "docker"), "0123456789abcdef")
    assert told.code is FailureCode.NAME_CONFLICT
    assert 'workload "w" of node "m" in cluster "d"' in str(told)
    assert "0123456789ab)" in str(told)
    assert "did not make" in str(refusal("w", {}))


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".", "..", "-x", "a" * 254, "a\n"])
def test_ids_that_could_be_paths_are_refused(name: str) -> None:
    """Only what a workload may be called becomes a name of the Engine or a folder (defect 31)."""
    with pytest.raises(RuntimeFailedError):
        checked_id(name)
