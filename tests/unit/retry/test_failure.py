from __future__ import annotations

from datetime import UTC, datetime

import pytest

from persys_core.model.workload import FailureKind
from persys_core.retry.failure import (
    FAILURE_CODES,
    FAILURE_RULES,
    classify_failure,
    infrastructure_failure,
    is_node_bound,
    match_failure,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WORKLOAD = FailureKind.WORKLOAD
PERMANENT = FailureKind.PERMANENT
INFRASTRUCTURE = FailureKind.INFRASTRUCTURE

# One line per row of the table at least, in its order: code, text, expected code and kind.
CASES = [
    ("", "exited with code 137: killed", "exited", WORKLOAD),
    ("PORT_BIND_CONFLICT", "exited with code 1: bind: address already in use", "exited", WORKLOAD),
    ("INVALID_SPECIFICATION", "exited with code 2: invalid flag", "exited", WORKLOAD),
    ("", "dead: OCI runtime error", "exited", WORKLOAD),
    ("", "exited with code 1: [STALE_EPOCH] printed", "exited", WORKLOAD),
    (
        "REJECTED",
        "[STALE_EPOCH] the call carries epoch 3, but this agent has obeyed epoch 7",
        "stale_epoch",
        INFRASTRUCTURE,
    ),
    ("", "runtime not available: vm", "runtime_unavailable", INFRASTRUCTURE),
    (
        "UNKNOWN_ERROR",
        "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is it running?",
        "runtime_unavailable",
        INFRASTRUCTURE,
    ),
    (
        "PORT_BIND_CONFLICT",
        "create failed: bind source path does not exist: /srv/a",
        "bind_source_missing",
        WORKLOAD,
    ),
    ("", 'container name "web" is already in use (id=1)', "name_conflict", WORKLOAD),
    ("NAME_CONFLICT", 'the name "web" is already in use', "name_conflict", WORKLOAD),
    (
        "PORT_BIND_CONFLICT",
        '[START_FAILED] Failed to start: host port 80 is taken by container "web"',
        "port_conflict",
        WORKLOAD,
    ),
    ("PORT_BIND_CONFLICT", "", "port_conflict", PERMANENT),
    (
        "PORT_BIND_CONFLICT",
        "start failed: Bind for 0.0.0.0:80 failed: port is already allocated",
        "port_conflict",
        PERMANENT,
    ),
    ("", "[START_FAILED] x: listen tcp: address already in use", "port_conflict", WORKLOAD),
    ("", "create failed: invalid reference format", "invalid_image", PERMANENT),
    ("INVALID_IMAGE", "invalid image name", "invalid_image", PERMANENT),
    ("", "image not found", "image_not_found", WORKLOAD),
    ("", "No such image: shop/web:1", "image_not_found", WORKLOAD),
    (
        "INVALID_IMAGE",
        "manifest for shop/web:1 not found: manifest unknown",
        "image_not_found",
        WORKLOAD,
    ),
    (
        "INVALID_IMAGE",
        "pull access denied for web, repository does not exist or may require 'docker login'",
        "image_not_found",
        WORKLOAD,
    ),
    (
        "",
        'failed to resolve reference "docker.io/a/b:c": docker.io/a/b:c: not found',
        "image_not_found",
        WORKLOAD,
    ),
    ("IMAGE_NOT_FOUND", "gone", "image_not_found", WORKLOAD),
    ("", "Get https://r/v2/: no basic auth credentials", "image_auth_failed", WORKLOAD),
    ("IMAGE_PULL_AUTH_FAILED", "forbidden", "image_auth_failed", WORKLOAD),
    (
        "INVALID_IMAGE",
        'failed to pull: Get "https://registry-1.docker.io/v2/": dial tcp: i/o timeout',
        "registry_unreachable",
        INFRASTRUCTURE,
    ),
    ("", "toomanyrequests: pull rate limit", "registry_unreachable", INFRASTRUCTURE),
    ("", "lookup registry.local: no such host", "registry_unreachable", INFRASTRUCTURE),
    ("IMAGE_PULL_TIMEOUT", "", "registry_unreachable", INFRASTRUCTURE),
    ("INVALID_IMAGE", "", "invalid_image", PERMANENT),
    ("", "invalid spec", "invalid_spec", PERMANENT),
    ("INVALID_SPEC", "what", "invalid_spec", PERMANENT),
    ("INVALID_SPECIFICATION", "what", "invalid_spec", PERMANENT),
    ("CLOUD_INIT_INVALID", "user_data exceeds 256 KiB", "invalid_spec", PERMANENT),
    ("INVALID_CONFIGURATION", "what", "invalid_configuration", PERMANENT),
    ("", "invalid request: spec must contain container, compose, or vm", "invalid_spec", PERMANENT),
    ("DISK_PRESSURE", "root is at 95 %", "disk_pressure", PERMANENT),
    ("DOMAIN_PAUSED_IO", "paused (I/O error)", "domain_paused_io", PERMANENT),
    ("", "OutOfCpu", "admission_refused", WORKLOAD),
    (
        "",
        "failed to apply workload w: [RESOURCE_QUOTA_EXCEEDED] Insufficient system resources to"
        " admit workload (workload: w)",
        "admission_refused",
        WORKLOAD,
    ),
    (
        "RESOURCE_QUOTA_EXCEEDED",
        "recreate deferred due to resource constraints: [cpu 91 %]",
        "admission_refused",
        WORKLOAD,
    ),
    ("INSUFFICIENT_MEMORY", "no", "admission_refused", WORKLOAD),
    ("OutOfCpu", "no", "admission_refused", WORKLOAD),
    ("RESOURCE_QUOTA", "", "quota_exceeded", PERMANENT),
    ("RESOURCE_QUOTA_EXCEEDED", "tenant a may have 4 workloads", "quota_exceeded", PERMANENT),
    ("", "write /x: no space left on device", "disk_full", WORKLOAD),
    ("STORAGE_FULL", "x", "disk_full", WORKLOAD),
    ("RUNTIME_UNHEALTHY", "x", "runtime_unavailable", INFRASTRUCTURE),
    ("NETWORK_TIMEOUT", "", "network_unreachable", INFRASTRUCTURE),
    ("NETWORK_UNREACHABLE", "dial: no route to host", "network_unreachable", INFRASTRUCTURE),
    ("NETWORK_UNREACHABLE", "network shop-net is no bridge", "runtime_error", WORKLOAD),
    ("STORAGE_ATTACH_FAILED", "attach: busy", "storage_failed", WORKLOAD),
    ("", "managed storage setup failed: x", "storage_failed", WORKLOAD),
    ("IMAGE_PULL_FAILED", "x", "image_pull_failed", WORKLOAD),
    ("VM_BOOT_FAILED", "x", "vm_boot_failed", WORKLOAD),
    ("START_TIMEOUT", "x", "start_timeout", WORKLOAD),
    ("", "[CREATE_FAILED] Failed to create workload in runtime", "create_failed", WORKLOAD),
    ("RUNTIME_ERROR", "[START_FAILED] no", "start_failed", WORKLOAD),
    ("", "[DELETE_FAILED] no", "delete_failed", WORKLOAD),
    ("RUNTIME_RESOURCE_MISSING", "x", "resource_missing", WORKLOAD),
    ("rejected", "no", "rejected", WORKLOAD),
    ("PORT_BIND_CONFLICT", "unsupported machine type", "runtime_error", WORKLOAD),
    ("INVALID_IMAGE", "volume backup-image not found on host", "runtime_error", WORKLOAD),
    ("", "", "runtime_error", WORKLOAD),
    ("SOMETHING_NEW", "a later agent's word", "runtime_error", WORKLOAD),
]


@pytest.mark.parametrize(("code", "text", "expected", "kind"), CASES)
def test_failures_are_told_apart(code: str, text: str, expected: str, kind: FailureKind) -> None:
    """Each code and text has the verdict of the first row that it fits (R01, R03)."""
    failure = classify_failure(code, text, NOW)
    assert (failure.code, failure.kind, failure.at) == (expected, kind, NOW)


def test_every_row_is_reached() -> None:
    """No row of the table is shadowed by an earlier one, as far as the cases above show."""
    reached = {id(match_failure(code, text)) for code, text, _, _ in CASES}
    unreached = [rule for rule in FAILURE_RULES if id(rule) not in reached]
    assert unreached == []


def test_the_last_row_takes_everything() -> None:
    """The table is total."""
    last = FAILURE_RULES[-1]
    assert not last.codes
    assert last.words is None


@pytest.mark.parametrize(
    "reason",
    "INVALID_IMAGE INVALID_SPECIFICATION INVALID_CONFIGURATION PORT_BIND_CONFLICT DISK_PRESSURE"
    " DOMAIN_PAUSED_IO RESOURCE_QUOTA RESOURCE_QUOTA_EXCEEDED".split(),
)
def test_terminal_reasons_are_final_where_no_text_contradicts(reason: str) -> None:
    """The reference's terminal reasons halt at once (decisions, values: terminal reasons)."""
    assert classify_failure(reason, "", NOW).kind is PERMANENT
    assert classify_failure(reason.lower(), "", NOW).kind is PERMANENT


@pytest.mark.parametrize(
    "text",
    [
        "export of volume failed",
        "unsupported option",
        "report could not be written to host path",
        "image labels are too long",
        "template not found",
    ],
)
def test_broad_words_make_no_verdict(text: str) -> None:
    """*Port* in *support*, *host*, *image* or *not found* alone say nothing (agent defect 30)."""
    for code in ("PORT_BIND_CONFLICT", "NETWORK_UNREACHABLE", "INVALID_IMAGE", ""):
        assert classify_failure(code, text, NOW).code == "runtime_error"


@pytest.mark.parametrize(
    "spelling", ["image-not-found", "FAILURE_REASON_IMAGE_NOT_FOUND", " image not found "]
)
def test_codes_may_be_spelt_in_any_way(spelling: str) -> None:
    """Case, dashes, blanks and the enum's prefix do not matter."""
    assert classify_failure(spelling, "x", NOW).code == "image_not_found"


def test_codes_are_a_closed_set() -> None:
    """Whatever an agent calls its failure, the code stays fit for a metric's label (M02)."""
    assert classify_failure("id-4711", "…", NOW).code in FAILURE_CODES
    assert {code for _, _, code, _ in CASES} == FAILURE_CODES


def test_refusals_of_one_node_are_of_that_node() -> None:
    """What another node may do better is known by its code (R01); what none can, is not."""
    assert is_node_bound("admission_refused")
    assert is_node_bound("rejected")
    assert not is_node_bound("image_not_found")
    assert not is_node_bound("exited")
    assert not is_node_bound("agent_unreachable")


def test_messages_are_bounded_and_carry_no_url_password() -> None:
    """A megabyte of log, or a registry's URL with its password, does not reach the record (A04)."""
    failure = classify_failure("", "pull redis://u:s3cr3t@h/0 " + "x" * 10**6, NOW)
    assert "s3cr3t" not in failure.message
    assert len(failure.message.encode()) <= 1024


def test_a_silent_agent_still_gives_a_message() -> None:
    """A reason shown to people is never empty (C01)."""
    assert "INVALID_IMAGE" in classify_failure("INVALID_IMAGE", " ", NOW).message
    assert classify_failure("", "", NOW).message


def test_what_the_scheduler_met_itself_is_infrastructure() -> None:
    """An unreachable agent or store is never the workload's fault, whatever its text (R03)."""
    failure = infrastructure_failure("agent_unreachable", "image not found", NOW)
    assert failure.kind is INFRASTRUCTURE
    assert failure.code == "agent_unreachable"
