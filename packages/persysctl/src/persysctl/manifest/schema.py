"""The Workload document: its keys, what each accepts, and which of them go together.

Decided here: the format that docs/manifests.md describes. Not decided here: how it is turned into
the contract's message (``to_proto``), and what a scheduler refuses beyond it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from persysctl.manifest import placement, shapes
from persysctl.manifest.placement import Placement
from persysctl.manifest.section import Item, Section
from persysctl.manifest.shapes import Compose, ManagedVolume, Port, Resources, Vm, Volume
from persysctl.suggest import did_you_mean

__all__ = ["API_VERSION", "DESIRED_STATES", "KIND", "WorkloadDocument", "read_workload"]

API_VERSION = "persys.io/v1"
KIND = "Workload"
DESIRED_STATES = ("Running", "Stopped")
RESTART_POLICIES = ("no", "always", "on-failure", "unless-stopped")
_TYPES = ("container", "compose", "vm", "microvm")
_TYPE_ALIASES = {
    "docker-container": "container",
    "docker-compose": "compose",
    "micro-vm": "microvm",
    "firecracker": "microvm",
}
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}\Z", re.ASCII)

# Which keys of spec say something only for some types.
_KEYS_OF_TYPES: dict[str, tuple[str, ...]] = {
    "image": ("container",),
    "command": ("container",),
    "args": ("container",),
    "ports": ("container",),
    "volumes": ("container",),
    "restartPolicy": ("container",),
    "privileged": ("container",),
    "env": ("container", "compose"),
    "managedVolumes": ("container", "vm", "microvm"),
    "compose": ("compose",),
    "composeFile": ("compose",),
    "git": ("compose",),
    "vm": ("vm", "microvm"),
}


@dataclass(frozen=True, slots=True)
class WorkloadDocument:
    """A Workload document that was read; only complete where no problem was found in it."""

    name: str
    labels: dict[str, str]
    type: str
    image: str
    command: tuple[str, ...]
    env: dict[str, str]
    ports: tuple[Port, ...]
    volumes: tuple[Volume, ...]
    managed_volumes: tuple[ManagedVolume, ...]
    restart_policy: str
    privileged: bool
    resources: Resources
    compose: Compose
    vm: Vm
    placement: Placement
    desired_state: str


def read_workload(item: Item) -> WorkloadDocument | None:
    """Read one document; every problem in it is noted. ``None`` where there is nothing to read."""
    root = item.section()
    if root is None:
        return None
    with root:
        if not _head_is_right(root):
            return None
        name, labels = _metadata(root)
        root.require("spec", "{type: container, image: …}")
        child = root.child("spec")
        spec = child.section() if child else None
        if spec is None:
            return None
        with spec:
            return _spec(spec, name, labels)


def _head_is_right(root: Section) -> bool:
    """Whether this is a Workload at all; if not, the other keys would only make noise."""
    if root.has("services") and not root.has("kind"):
        root.child("services")
        root.item.refuse(
            "this is a Compose file, not a manifest; name it as spec.composeFile of a Workload"
        )
        for key in root.node.entries:
            root.child(key)
        return False
    root.require("apiVersion", API_VERSION)
    root.require("kind", KIND)
    version = root.choice("apiVersion", [API_VERSION])
    kind = root.choice("kind", [KIND])
    known = bool(version and kind)
    if not known and root.has("kind") and not kind:
        for key in root.node.entries:
            root.child(key)
    return known or not root.has("kind")


def _metadata(root: Section) -> tuple[str, dict[str, str]]:
    root.require("metadata", "{name: web}")
    child = root.child("metadata")
    metadata = child.section() if child else None
    if metadata is None:
        return "", {}
    with metadata:
        metadata.require("name", "web")
        return _name(metadata), _labels(metadata)


def _name(metadata: Section) -> str:
    child = metadata.child("name")
    name = child.text() if child else None
    if child is not None and name is not None and not _ID.match(name):
        child.refuse(
            f"{name!r} is not a valid name: 1 to 253 letters, digits, '.', '_' or '-',"
            " the first one a letter or a digit"
        )
    return name or ""


def _labels(metadata: Section) -> dict[str, str]:
    labels = metadata.pairs("labels")
    child = metadata.child("labels")
    for key in labels:
        if child is not None and key.startswith(placement.PREFIX):
            child.refuse(f"{key}: placement is written in spec, see docs/manifests.md")
        elif child is not None and not key.strip():
            child.refuse("a label needs a name")
    return labels


def _spec(spec: Section, name: str, labels: dict[str, str]) -> WorkloadDocument:
    kind = _type(spec)
    document = WorkloadDocument(
        name=name,
        labels=labels,
        type=kind,
        image=spec.text("image"),
        command=shapes.read_command(spec),
        env=shapes.read_env(spec),
        ports=shapes.read_ports(spec),
        volumes=shapes.read_volumes(spec),
        managed_volumes=shapes.read_managed_volumes(spec),
        restart_policy=spec.choice("restartPolicy", RESTART_POLICIES),
        privileged=spec.flag("privileged"),
        resources=shapes.read_resources(spec),
        compose=shapes.read_compose(spec),
        vm=shapes.read_vm(spec),
        placement=placement.read_placement(spec),
        desired_state=spec.choice("desiredState", DESIRED_STATES),
    )
    if kind:
        _check_body(spec, kind)
    return document


def _type(spec: Section) -> str:
    spec.require("type", "container")
    child = spec.child("type")
    given = child.text() if child else None
    if child is None or given is None:
        return ""
    kind = _TYPE_ALIASES.get(given.lower(), given.lower())
    if kind in _TYPES:
        return kind
    hint = did_you_mean(given, [*_TYPES, *_TYPE_ALIASES])
    child.refuse(f"{given!r} is not a type; write one of {', '.join(_TYPES)}{hint}")
    return ""


def _check_body(spec: Section, kind: str) -> None:
    """Refuse keys of another type, and a body that is absent or given twice."""
    for key, kinds in _KEYS_OF_TYPES.items():
        child = spec.child(key)
        if child is not None and kind not in kinds:
            child.refuse(f"is of no use for type {kind}; it belongs to {' and '.join(kinds)}")
    match kind:
        case "container":
            _need_one(spec, ("image",), "image: nginx:1.27")
        case "compose":
            _need_one(spec, ("compose", "composeFile", "git"), "composeFile: shop.compose.yaml")
        case _:
            _need_one(spec, ("vm",), "vm: {vcpus: 2, memory: 2Gi, osImage: ubuntu-24.04}")


def _need_one(spec: Section, keys: tuple[str, ...], example: str) -> None:
    given = [key for key in keys if key in spec.node.entries]
    if not given:
        one_of = "one of " if len(keys) > 1 else ""
        spec.item.refuse(f"needs {one_of}{', '.join(keys)}; write for example {example}")
    elif len(given) > 1:
        spec.item.refuse(f"{' and '.join(given)} exclude each other; keep one")
    elif keys == ("image",) and spec.has("image") and not spec.text("image").strip():
        child = spec.child("image")
        assert child is not None
        child.refuse("is empty; write for example nginx:1.27")
