"""What containers are called: no two workloads of any nodes get one name."""

from __future__ import annotations

from itertools import product

from persys_agent.runtimes.docker.names import LONGEST, container_name
from persys_agent.settings import ContainerNames
from persys_core.model.ids import is_valid_id

NODE = ContainerNames.NODE


def test_the_default_is_the_workloads_id() -> None:
    """As agents in the field do, so that their containers are found; Docker has no shorter ones."""
    assert container_name(ContainerNames.WORKLOAD, "n", "web") == "web"
    assert container_name(ContainerNames.WORKLOAD, "n", "w") == "w_"


def test_a_node_stands_before_its_workload() -> None:
    """Readable where that is unambiguous."""
    assert container_name(NODE, "sim-1", "web.v2") == "sim-1.web.v2"


def test_no_two_pairs_share_a_name() -> None:
    """Dots in both ids, ids of every length, and workloads that look like what we make."""
    ids = ["a", "a.b", "b", "a-b", "b.c", "a" * 100, "a" * 253, "a" * 252 + "b"]
    ids += [container_name(NODE, "a.b", "c"), f"b.{container_name(NODE, 'a.b', 'c')}"]
    pairs = list(product(filter(is_valid_id, ids), repeat=2))
    names = [container_name(NODE, *each) for each in pairs]
    assert len({*names}) == len(pairs)
    assert all(is_valid_id(name) and len(name) <= LONGEST for name in names)
