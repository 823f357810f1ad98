"""Where a workload may go: the placement keys of spec, and their form in the contract.

Decided here: how the wishes are written in a manifest and how they become ``persys.scheduling.*``
metadata. Not decided here: what they do; the scheduler decides that.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from persysctl.manifest.section import Item, Section
from persysctl.manifest.tree import MappingNode, Scalar, is_empty

__all__ = ["PREFIX", "Placement", "placement_metadata", "read_placement"]

PREFIX = "persys.scheduling."
STRATEGIES = ("spread", "binpack")
PERSISTENCE_CLASSES = ("ephemeral", "node-local", "shared-storage")
TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
MAX_PRIORITY = 1_000_000
_FORBIDDEN = re.compile(r"[,;\s]")
_TOLERATION = re.compile(r"(?P<key>[^=:,\s]+)(=(?P<value>[^:,]*))?(:(?P<effect>\w+))?\Z")


@dataclass(frozen=True, slots=True)
class Placement:
    """The wishes; an empty one restricts nothing."""

    node_selector: dict[str, str]
    tolerations: tuple[str, ...]
    anti_affinity: dict[str, str]
    spread_by: str
    exclude_nodes: tuple[str, ...]
    strategy: str
    persistence: str
    allow_move: bool | None
    priority: int | None
    disk_ids: tuple[str, ...]
    node_system: bool


def read_placement(spec: Section) -> Placement:
    """Read the placement keys of ``spec``."""
    priority = spec.child("priority")
    allow_move = spec.flag("allowMove")
    return Placement(
        node_selector=_pairs(spec, "nodeSelector"),
        tolerations=tuple(filter(None, map(_toleration, spec.items("tolerations")))),
        anti_affinity=_pairs(spec, "antiAffinity"),
        spread_by=spec.text("spreadBy").strip(),
        exclude_nodes=_words(spec, "excludeNodes"),
        strategy=spec.choice("strategy", STRATEGIES),
        persistence=spec.choice("persistence", PERSISTENCE_CLASSES),
        allow_move=allow_move if spec.has("allowMove") else None,
        priority=priority.integer(-MAX_PRIORITY, MAX_PRIORITY) if priority else None,
        disk_ids=_words(spec, "diskIds"),
        node_system=spec.flag("nodeSystem"),
    )


def placement_metadata(placement: Placement) -> dict[str, str]:
    """The wishes as metadata of the contract; what was not wished for has no key."""
    anti = ",".join(f"{label}={value}" for label, value in placement.anti_affinity.items())
    move = None if placement.allow_move is None else str(placement.allow_move).lower()
    values = {
        **{f"node_selector.{key}": value for key, value in placement.node_selector.items()},
        "tolerations": ",".join(placement.tolerations),
        "anti_affinity": anti,
        "spread_by": placement.spread_by,
        "exclude_nodes": ",".join(placement.exclude_nodes),
        "strategy": placement.strategy,
        "persistence_class": placement.persistence,
        "allow_move": move or "",
        "priority": "" if placement.priority is None else str(placement.priority),
        "node_system": "true" if placement.node_system else "",
    }
    metadata = {
        PREFIX + key: value
        for key, value in values.items()
        if value or key.startswith("node_selector.")
    }
    if placement.disk_ids:
        metadata["persys.disk.ids"] = ",".join(placement.disk_ids)
    return metadata


def _pairs(spec: Section, key: str) -> dict[str, str]:
    """Labels and their values; both must survive being joined with commas."""
    child = spec.child(key)
    if child is None or is_empty(child.node):
        return {}
    if not isinstance(child.node, MappingNode):
        child.refuse("must be a mapping of labels, such as {disk: ssd}")
        return {}
    pairs = spec.pairs(key)
    for label, value in pairs.items():
        if not label.strip() or _FORBIDDEN.search(label + value) or "=" in label:
            child.refuse(f"{label}: {value!r}: labels and values hold no blank, comma or semicolon")
        elif key == "antiAffinity" and not value:
            child.refuse(f"{label}: needs a value; write for example {{app: web}}")
    return pairs


def _words(spec: Section, key: str) -> tuple[str, ...]:
    words = [(item, item.text()) for item in spec.items(key)]
    for item, word in words:
        if word is not None and (not word or _FORBIDDEN.search(word)):
            item.refuse(f"{word!r} must be one word, without blanks and commas")
    return tuple(word for _, word in words if word)


def _toleration(item: Item) -> str | None:
    if isinstance(item.node, Scalar):
        return _short_toleration(item)
    section = item.section()
    if section is None:
        return None
    with section:
        section.require("key", "dedicated")
        key, value = section.text("key"), section.text("value")
        effect = section.choice("effect", TAINT_EFFECTS)
        if re.search(r"[=:,\s]", key) or re.search(r"[:,\s]", value):
            item.refuse("key and value hold no blank, comma or colon, and the key no '='")
        text = key + (f"={value}" if section.has("value") else "")
        return text + (f":{effect}" if effect else "")


def _short_toleration(item: Item) -> str | None:
    text = item.text()
    if text is None:
        return None
    match = _TOLERATION.match(text)
    effect = match["effect"] if match else None
    if match is None or (effect is not None and effect not in TAINT_EFFECTS):
        item.refuse(
            f"{text!r} is not key[=value][:Effect] with Effect one of {', '.join(TAINT_EFFECTS)}"
        )
        return None
    return text
