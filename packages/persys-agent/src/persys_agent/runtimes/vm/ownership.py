"""The mark of a domain: an element of ours in its metadata.

Decided here: whose a domain is. The element names node, cluster, workload, revision and spec hash;
only a domain whose node and cluster are ours is listed, changed or removed. A domain of the
reference agent has no such element, so nothing says which node's it is, or of which revision: it is
never adopted, but refused with ``NAME_CONFLICT`` like any other, and stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from xml.etree import ElementTree as ET

from attrs import field, frozen

from persys_agent.runtimes.port import Owner
from persys_core.model.ids import RevisionId, WorkloadId

__all__ = ["NAMESPACE", "Mark", "mark_element", "read_mark"]

NAMESPACE = "urn:persys:agent:workload:1"
_PREFIX = "persys"


@frozen
class Mark:
    """What the element says. ``seed`` holds the reported keys of the cloud-init seed."""

    owner: Owner
    workload_id: WorkloadId
    revision_id: RevisionId
    spec_hash: str
    seed: dict[str, str] = field(factory=dict, hash=False)


def mark_element(mark: Mark, labels: Mapping[str, str]) -> ET.Element:
    """The element, to be put below ``metadata``; ``labels`` are shown in it, and never read."""
    ET.register_namespace(_PREFIX, NAMESPACE)
    element = ET.Element(
        f"{{{NAMESPACE}}}workload",
        {
            "node": mark.owner.node_id,
            "cluster": mark.owner.cluster_id,
            "id": mark.workload_id,
            "revision": mark.revision_id,
            "spec-hash": mark.spec_hash,
        },
    )
    for key, value in sorted(mark.seed.items()):
        ET.SubElement(element, f"{{{NAMESPACE}}}seed", {"key": key, "value": value})
    for key, value in sorted(labels.items()):
        ET.SubElement(element, f"{{{NAMESPACE}}}label", {"key": key, "value": value})
    return element


def read_mark(text: str) -> Mark:
    """The mark in an element as libvirt gives it back (with or without the namespace)."""
    element = ET.fromstring(text)
    seeds = [each for each in element if each.tag.rpartition("}")[2] == "seed"]
    return Mark(
        Owner(element.get("node", ""), element.get("cluster", "")),
        element.get("id", ""),
        element.get("revision", ""),
        element.get("spec-hash", ""),
        {each.get("key", ""): each.get("value", "") for each in seeds},
    )
