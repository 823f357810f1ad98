"""An etcd as the reference scheduler leaves it: every record, layout, word and oddity known of.

``corpus()`` is all of it; each part can be had alone. ``RUNNING`` says what the agents of that
cluster run, node by node: a take-over touches none of it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any

from tests.corpus.reference_records import (
    AT,
    ZERO,
    Json,
    assignment,
    attachment,
    go_json,
    go_map,
    legacy,
    machine,
    managed_volume,
    metadata,
    node,
    revision,
    spec,
    status,
    volume,
)

Keys = dict[bytes, bytes]

WORDS = (
    "Pending", "Scheduled", "Running", "Stopped", "Failed", "Unknown", "Updating", "RetryPending",
    "Deleting", "Deleted", "exited(137)", "running", "",
)  # fmt: skip
"""Every status that the reference writes, raw words of agents, and none at all."""
ODD_ID = "team/web 1 <ä>"
"""An id that the reference accepts and we refuse."""
YAML = "services:\n  web:\n    image: nginx:1\n"

RUNNING: Mapping[str, tuple[str, ...]] = {
    "n1": (
        "web", "db", "shop", "shop-b64", "logs", "both", "old-web", "bare", "no-status",
        "failed-runs",
        ODD_ID,
        *(f"word-{number}" for number in range(len(WORDS))),
    ),
    "n2": ("box",),
    "n3": ("git", "old-unassigned", "unassigned"),
    "n4": ("fire",),
    "n5": ("small",),
    "n6": ("on-broken-node",),
}  # fmt: skip
STOPPED: Mapping[str, tuple[str, ...]] = {"n1": ("resting",)}
QUARANTINED = (
    "/nodes/n6", "/assignments/no-place", "/workloads-spec/broken", "/workloads-spec/wasm",
    "/workloads-status/no-word", "/workloads/old-broken",
)  # fmt: skip
"""What nobody can read: a node whose agent is there all the same, and parts of workloads."""


def corpus() -> Keys:
    """Everything in one store."""
    parts = (
        nodes(), containers(), compose(), machines(), legacy_layout(), both_layouts(), partial(),
        vocabulary(), odd_records(), large(), unreadable(), volumes(), write_only(), drifts(),
        ended(),
    )  # fmt: skip
    return {key: value for part in parts for key, value in part.items()}


def workload(workload_id: str, node_id: str = "n1", word: str = "Running", **more: Any) -> Keys:
    """A container in the split layout, with all the keys that the reference gives one."""
    return _split(spec(workload_id, **more), status(workload_id, node_id, word))


def _split(spec_of: Json, status_of: Json) -> Keys:
    id_, node_id = str(spec_of["id"]), status_of.get("nodeId", "")
    found = {f"/workloads-spec/{id_}": spec_of, f"/workloads-status/{id_}": status_of}
    if node_id:
        found[f"/assignments/{id_}"] = assignment(id_, node_id)
    return _keys(found) | retries(id_)


def _keys(records: Mapping[str, Json]) -> Keys:
    return {path.encode(): go_json(record) for path, record in records.items()}


def nodes() -> Keys:
    """Ready, draining, tainted, NotReady and without any capacity, each with its shadow."""
    taints = [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}, {"key": "old", "effect": ""}]
    found = [
        node("n1", futureField={"of": ["a later release"]}),
        node("n2", status="Draining", statusReason="node drain requested"),
        node("n3", taints=taints),
        node("n4", status="NotReady", statusReason=f"heartbeat expired: last heartbeat {AT}"),
        node("n5", cpu=0, memory=0, lastHeartbeat=ZERO, supportedWorkloadTypes=None),
    ]
    records = {f"/nodes/{each['nodeId']}": each for each in found}
    shadows = {
        f"/nodes/{each['nodeId']}/status".encode(): each["status"].encode() for each in found
    }
    return _keys(records) | shadows


def containers() -> Keys:
    """A rich one, with fields of a later release at every level; one whose volume fell out of its
    spec (defect A1); one that rests; and one on a node that did not say what it has."""
    later: Json = {"futureField": 1}
    rich = spec(
        "web",
        commandList=["sh", "-c", "echo '<a&b>' \u2028"],
        envVars=go_map({"PORT": "80", "MODE": "a&b"}),
        resources={"cpu_usage": 0.5, "memory_usage": 256, "disk_usage": 1, **later},
        ports=["8080:80/tcp", "53:53/udp"],
        volumes=["/srv/web:/srv:ro"],
        network="bridge",
        restartPolicy="always",
        **later,
    )
    noted = metadata(reason_retryable=True, futureNumber=1.5, futureList=["a"], team="shop")
    seen = status("web", metadata=noted, **later)
    seen["retry"] |= later
    seen["statusInfo"] |= later
    seen["statusInfo"]["reason"] |= later
    return (
        _split(rich, seen)
        | workload("db")
        | _split(spec("resting", desiredState="Stopped"), status("resting", word="Stopped"))
        | workload("small", "n5")
    )


def compose() -> Keys:
    """Inline, as base64 under the older name, and from a repository with a token."""
    encoded = base64.b64encode(YAML.encode()).decode()
    git = {"gitRepo": "https://example.org/shop.git", "gitBranch": "main", "gitToken": "t0ken"}
    return (
        _split(spec("shop", "compose", composeYaml=YAML, projectName="shop"), status("shop"))
        | _split(spec("shop-b64", "compose", compose=encoded), status("shop-b64"))
        | _split(spec("git", "compose", **git), status("git", "n3"))
    )


def machines() -> Keys:
    """A machine on a draining node, where its data keeps it, and a microVM of the July release."""
    box = machine("box", managedVolumes=[managed_volume("disk", "local")])
    fire = machine("fire", osImage="debian-12", diskGb=5, runtime="firecracker")
    ip = metadata(
        **{"vm.primary_ip": "10.0.0.9", "persys.scheduling.persistence_class": "node-local"}
    )
    return _split(spec("box", "vm", vm=box), status("box", "n2", metadata=ip)) | _split(
        spec("fire", "microvm", vm=fire), status("fire", "n4")
    )


def legacy_layout() -> Keys:
    """Old objects: placed, without an assignment, waiting, and to be deleted."""
    records = {
        "/workloads/old-web": legacy("old-web", futureField={"a": 1}),
        "/workloads/old-unassigned": legacy("old-unassigned", "n3"),
        "/workloads/old-waiting": legacy("old-waiting", "", "Pending"),
        "/workloads/old-deleted": legacy("old-deleted", word="Deleting", desiredState="Deleted"),
        "/assignments/old-web": assignment("old-web"),
        "/assignments/old-deleted": assignment("old-deleted"),
    }
    return _keys(records) | retries("old-web") | retries("old-deleted")


def both_layouts() -> Keys:
    """One id in both: the old object was left behind by an update."""
    stale = legacy("both", word="Failed", image="nginx:0", revisionId="0" * 24)
    return workload("both") | _keys({"/workloads/both": stale})


def partial() -> Keys:
    """What a crash between two puts leaves behind."""
    return (
        _keys({"/workloads-spec/no-status": spec("no-status")})
        | _keys({"/assignments/no-status": assignment("no-status")})
        | _keys({"/workloads-status/no-spec": status("no-spec")})
        | _keys({"/assignments/no-workload": assignment("no-workload")})
        | _keys({"/workloads-spec/unassigned": spec("unassigned")})
        | _keys({"/workloads-status/unassigned": status("unassigned", "n3")})
        | workload("homeless", "n-gone")
    )


def vocabulary() -> Keys:
    """One workload per status word, all running, whatever the record says of them."""
    found: Keys = {}
    for number, word in enumerate(WORDS):
        found |= workload(f"word-{number}", word=word)
    return found


def odd_records() -> Keys:
    """An odd id, a record with almost nothing in it, and nulls as Go writes them."""
    nulls: Json = {"commandList": None, "envVars": None, "ports": None, "vm": None, "labels": None}
    bare = {"id": "bare", "type": "container", "image": "nginx:1", "revisionId": revision("bare")}
    return (
        workload(ODD_ID, **nulls)
        | _keys({"/workloads-spec/bare": bare, "/workloads-status/bare": {"id": "bare"}})
        | _keys({"/assignments/bare": {"nodeId": "n1"}})
    )


def large() -> Keys:
    """Logs that grew for days: a status of a megabyte (defect C5)."""
    line = "[2025-12-01 10:00:00] ReapplyBackoffWait <again>\n"
    return _split(spec("logs"), status("logs", logs=line * (1_000_000 // len(line))))


def unreadable() -> Keys:
    """Damage at every place, and a kind of a later release."""
    damage = (
        b"/nodes/n6", b"/assignments/no-place", b"/workloads-status/no-word",
        b"/workloads-spec/broken", b"/workloads/old-broken",
    )  # fmt: skip
    return (
        workload("broken")
        | workload("no-word")
        | workload("no-place")
        | workload("on-broken-node", "n6")
        | _split(spec("wasm", "wasm"), status("wasm"))
        | dict.fromkeys(damage, b'{"id":"damaged","status":"Runni')
    )


def volumes() -> Keys:
    """What ``db`` has attached, a disk by itself, and one that nothing refers to any more."""
    disk = volume("disk-1", "", "", name="disk-1", driver="local", standalone=True, nodeId="n1")
    disk |= {"phase": "Available", "workloadRefs": None, "attachedNodes": None}
    kept = volume("nfs:kept", "", "", retainPolicy="Retain", phase="Retained")
    kept |= {"workloadRefs": None, "attachedNodes": None}
    return _keys(
        {
            "/volumes/nfs:data": volume("nfs:data", "db", "n1"),
            "/attachments/n1/db/nfs:data": attachment("n1", "db", "nfs:data"),
            "/volumes/disk-1": disk,
            "/volumes/nfs:kept": kept,
        }
    )


def retries(workload_id: str) -> Keys:
    """The copy that nobody reads."""
    record = {"attempts": 0, "maxAttempts": 5, "nextRetryAt": ZERO}
    return _keys({f"/retries/{workload_id}": record})


def write_only() -> Keys:
    """Reconciliation records, also of a workload that is gone (defect B6), events, and DNS."""
    done: Json = {"action": "NoAction", "success": True, "reason": "", "attemptedAt": AT}
    event = {
        "id": "0b9c2f0e-0000-4000-8000-000000000000",
        "type": "WorkloadScheduled",
        "workloadId": "web",
        "nodeId": "n1",
        "timestamp": AT,
        "details": go_map({"score": 0.5, "node": "n1"}),
    }
    return _keys(
        {f"/reconciliation/{id_}": {"workloadId": id_} | done for id_ in ("web", "old-web", "gone")}
        | {f"/events/{event['id']}": event}
        | {"/skydns/local/persys/persys-scheduler": {"host": "10.0.0.1", "ttl": 300}}
    )


def drifts() -> Keys:
    """A drift that was put right, and an unknown orphan."""
    known: Json = {
        "nodeId": "n1",
        "workloadId": "web",
        "driftType": "state_mismatch",
        "detectedAt": AT,
        "schedulerStatus": "Pending",
        "agentStatus": "Running",
        "action": "align_scheduler_status",
        "resolved": True,
    }
    orphan = known | {"workloadId": "", "driftType": "orphan_on_agent", "resolved": False}
    return _keys(
        {
            "/drifts/n1/web/state_mismatch": known,
            "/drifts/n1/_unknown/orphan_on_agent": orphan,
        }
    )


def ended() -> Keys:
    """Work that failed for good, that completed, and that waits for its next try."""
    info = {"actualState": "Failed", "lastUpdated": AT, "failureReason": "exited with code 1"}
    spent = {"attempts": 5, "maxAttempts": 5, "nextRetryAt": ZERO}
    halted = metadata(retry_terminal=True, failure_reason="INVALID_IMAGE")
    later = {"attempts": 2, "maxAttempts": 5, "nextRetryAt": "2025-12-01T10:02:00Z"}
    runs = status("failed-runs", word="Failed", metadata=halted, retry=spent)
    failed = status("failed", word="Failed", metadata=halted, retry=spent, statusInfo=info)
    return (
        _split(spec("failed"), failed)
        | _split(spec("failed-runs"), runs)
        | workload("done", word="Completed")
        | _split(spec("waiting"), status("waiting", "", "RetryPending", retry=later))
    )


def keys_of(store: Iterable[bytes], workload_id: str) -> list[str]:
    """The keys in ``store`` that belong to one workload, wherever its id stands in them."""
    mine = workload_id.encode()
    return sorted(
        key.decode(errors="surrogateescape")
        for key in store
        if key.endswith(b"/" + mine) or b"/" + mine.replace(b"/", b"_") + b"/" in key
    )
