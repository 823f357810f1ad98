"""What kind of failure something is: an ordered table, the first row that matches wins.

Decided here: from an agent's code and text, the stable code, how it counts (``FailureKind``) and
whether another node might do better. Not decided here: what follows from it (``machine``).

Three sources have to be reconciled:

* The *terminal reasons* of the reference (decisions, values) are verdicts of the agent that no
  retry can help: they are PERMANENT. They count only as the agent's verdict, as a code.
* The agent's classifier is over-broad (reference defects, agent, 30): the word *port* inside
  *support* makes a port conflict, any *not found* an invalid image, any *host* a network fault.
  So a code of that classifier counts only where the text bears it out, or where there is no text
  that could contradict it. A wrong PERMANENT would stop a workload that only needs patience.
* Field reports R01 and R03: a refusal at admission is a failure of this workload *on this node*;
  a missing image spends attempts (it may be pushed yet); an unreachable registry spends none.

Hence ``INVALID_IMAGE`` with *manifest unknown* spends attempts, and with *invalid reference
format* is final; ``RESOURCE_QUOTA_EXCEEDED`` is final, unless its text says that the host was
busy when it admitted. ``retry_terminal`` of an agent is no verdict: after three failures of any
kind it says *non-retryable*, and takes the workload again when it is sent again.
"""

from __future__ import annotations

import re
from datetime import datetime

from attrs import frozen

from persys_core.model.workload import Failure, FailureKind
from persys_core.retry.texts import presentable

__all__ = [
    "FAILURE_CODES",
    "FAILURE_RULES",
    "FailureRule",
    "classify_failure",
    "infrastructure_failure",
    "is_node_bound",
    "match_failure",
]

_LOOKED_AT = 4096
"""Characters of a text that are looked at; the cause stands at its beginning."""


@frozen
class FailureRule:
    """One row: which (code, text) it takes, and what it says of them.

    ``codes``: any of these (empty: any code). ``words``: found in the text, in any case (None:
    any text). Both must hold. ``node_bound``: the failure is of the workload on this node, so
    placement should prefer another node.
    """

    code: str
    kind: FailureKind
    because: str
    codes: frozenset[str] = frozenset()
    words: re.Pattern[str] | None = None
    node_bound: bool = False

    def matches(self, code: str, text: str) -> bool:
        """Whether this row takes a normalised code and a text."""
        if self.codes and code not in self.codes:
            return False
        return self.words is None or self.words.search(text) is not None


def _words(*alternatives: str) -> re.Pattern[str]:
    return re.compile("|".join(alternatives), re.IGNORECASE | re.DOTALL)


def _codes(names: str) -> frozenset[str]:
    return frozenset(names.split())


_INFRASTRUCTURE = FailureKind.INFRASTRUCTURE
_WORKLOAD = FailureKind.WORKLOAD
_PERMANENT = FailureKind.PERMANENT

_NO_TEXT = r"\A\s*\Z"
_TRANSPORT = (
    r"time-?out|timed out|deadline exceeded|connection (?:refused|reset)|no such host"
    r"|name resolution|network is unreachable|no route to host|server misbehaving"
)
_PORT_TAKEN = (
    r"address already in use|port is already allocated|ports? (?:are|is) not available"
    r"|bind for \S+ failed|error starting userland proxy"
)
_ABOUT_A_PULL = r"\bpull(?:ing)?\b|\bregistry\b|\bmanifest\b|\bdocker\.io\b|/v2/"
_BUSY_HOST = (
    r"\bout ?of ?(?:cpu|memory|disk)\b"
    r"|\binsufficient (?:system resources|resources|cpu|memory|disk)\b"
    r"|\badmission rejected\b|\bresource constraints\b"
)

FAILURE_RULES: tuple[FailureRule, ...] = (
    FailureRule(
        "exited",
        _WORKLOAD,
        "its own program ended; whatever words it printed are its own, not a fault of the host",
        words=_words(r"\bexited with code -?\d+", r"\A\s*dead:"),
    ),
    FailureRule(
        "stale_epoch",
        _INFRASTRUCTURE,
        "the agent obeys a newer scheduler than the sender; the workload is not to blame",
        codes=_codes("STALE_EPOCH"),
    ),
    FailureRule(
        "runtime_unavailable",
        _INFRASTRUCTURE,
        "the node's runtime is away or lacks the type; the workload is not to blame (defect C11)",
        words=_words(
            r"runtime not available",
            r"cannot connect to the docker daemon",
            r"docker\.sock\b",
            r"failed to connect .{0,100}libvirt",
        ),
        node_bound=True,
    ),
    FailureRule(
        "bind_source_missing",
        _WORKLOAD,
        "a host path is not there; agents call this a port conflict, for the word bind",
        words=_words(r"bind source path does not exist", r"invalid mount config"),
        node_bound=True,
    ),
    FailureRule(
        "name_conflict",
        _WORKLOAD,
        "something else on the node has this name",
        words=_words(r"\bname .{1,300} is already in use\b"),
        node_bound=True,
    ),
    FailureRule(
        "port_conflict",
        _PERMANENT,
        "terminal reason, borne out by the text",
        codes=_codes("PORT_BIND_CONFLICT"),
        words=_words(_PORT_TAKEN, _NO_TEXT),
    ),
    FailureRule(
        "port_conflict",
        _WORKLOAD,
        "without the agent's verdict: the port's holder may be going, and other nodes have it free",
        words=_words(_PORT_TAKEN, r"\bhost port \d{1,5} is taken by\b"),
        node_bound=True,
    ),
    FailureRule(
        "invalid_image",
        _PERMANENT,
        "no registry can ever have an image of such a name",
        words=_words(
            r"\binvalid reference format\b",
            r"\brepository name must be lowercase\b",
            r"\binvalid image\b",
        ),
    ),
    FailureRule(
        "image_not_found",
        _WORKLOAD,
        "not there now; it may be pushed yet, so it spends attempts (R03)",
        words=_words(
            r"\bmanifest unknown\b",
            r"\bmanifest for \S{1,400} not found\b",
            r"\bpull access denied\b",
            r"\bno such image\b",
            r"\brepository (?:\S{1,400} )?(?:does not exist|not found)\b",
            r"(?<![\w-])image:? (?:\S{1,400} )?(?:was )?not found\b",
            r"\bfailed to resolve reference .{1,400}: not found\b",
        ),
    ),
    FailureRule(
        "image_not_found",
        _WORKLOAD,
        "the agent's word for it",
        codes=_codes("IMAGE_NOT_FOUND"),
    ),
    FailureRule(
        "image_auth_failed",
        _WORKLOAD,
        "the registry wants other credentials; they can be put right",
        words=_words(
            r"\bno basic auth credentials\b",
            r"\bunauthorized: authentication required\b",
            r"\bdenied: requested access\b",
        ),
    ),
    FailureRule(
        "image_auth_failed",
        _WORKLOAD,
        "the agent's word for it",
        codes=_codes("IMAGE_PULL_AUTH_FAILED"),
    ),
    FailureRule(
        "registry_unreachable",
        _INFRASTRUCTURE,
        "a dependency's outage must not use up the budget (R03)",
        words=_words(rf"\A(?=.*(?:{_ABOUT_A_PULL}))(?=.*(?:{_TRANSPORT}|toomanyrequests))"),
    ),
    FailureRule(
        "registry_unreachable",
        _INFRASTRUCTURE,
        "the agent's word for it, which needs a word of time beside one of images",
        codes=_codes("IMAGE_PULL_TIMEOUT"),
    ),
    FailureRule(
        "invalid_image",
        _PERMANENT,
        "terminal reason with no text to contradict it",
        codes=_codes("INVALID_IMAGE"),
        words=_words(_NO_TEXT),
    ),
    FailureRule(
        "invalid_spec",
        _PERMANENT,
        "terminal reason",
        codes=_codes("INVALID_SPEC INVALID_SPECIFICATION CLOUD_INIT_INVALID"),
    ),
    FailureRule(
        "invalid_configuration",
        _PERMANENT,
        "terminal reason",
        codes=_codes("INVALID_CONFIGURATION"),
    ),
    FailureRule(
        "invalid_spec",
        _PERMANENT,
        "the agent could not even read it",
        words=_words(
            r"\binvalid (?:workload )?spec(?:ification)?\b",
            r"\bspec must contain\b",
            r"\bcloud-init-invalid\b",
            r"\bunsupported workload type\b",
            r"\bcompose_yaml is required\b",
            r"\byaml: (?:line \d|unmarshal)",
        ),
    ),
    FailureRule("disk_pressure", _PERMANENT, "terminal reason", codes=_codes("DISK_PRESSURE")),
    FailureRule(
        "domain_paused_io",
        _PERMANENT,
        "terminal reason: the machine waits on broken storage, and starting it anew could harm it",
        codes=_codes("DOMAIN_PAUSED_IO"),
    ),
    FailureRule(
        "admission_refused",
        _WORKLOAD,
        "the host was busy or full when it was asked; it may not be later, others may not be (R01)",
        words=_words(_BUSY_HOST),
        node_bound=True,
    ),
    FailureRule(
        "admission_refused",
        _WORKLOAD,
        "the agent's word for it",
        codes=_codes(
            "ADMISSION_REFUSED INSUFFICIENT_RESOURCES INSUFFICIENT_CPU INSUFFICIENT_MEMORY"
            " INSUFFICIENT_DISK OUTOFCPU OUTOFMEMORY OUTOFDISK OUT_OF_CPU OUT_OF_MEMORY OUT_OF_DISK"
        ),
        node_bound=True,
    ),
    FailureRule(
        "quota_exceeded",
        _PERMANENT,
        "terminal reason: a quota, not the moment's load",
        codes=_codes("RESOURCE_QUOTA RESOURCE_QUOTA_EXCEEDED"),
    ),
    FailureRule(
        "disk_full",
        _WORKLOAD,
        "this node's disk is full",
        words=_words(r"\bno space left on device\b", r"\bdisk quota exceeded\b"),
        node_bound=True,
    ),
    FailureRule(
        "disk_full",
        _WORKLOAD,
        "the agent's word for it",
        codes=_codes("STORAGE_FULL STORAGE_QUOTA_FULL"),
        node_bound=True,
    ),
    FailureRule(
        "runtime_unavailable",
        _INFRASTRUCTURE,
        "the agent's word for it",
        codes=_codes("RUNTIME_NOT_AVAILABLE RUNTIME_UNHEALTHY RUNTIME_UNAVAILABLE"),
        node_bound=True,
    ),
    FailureRule(
        "network_unreachable",
        _INFRASTRUCTURE,
        "the node's network or name service is away, if the text bears it out",
        codes=_codes(
            "NETWORK_TIMEOUT NETWORK_UNREACHABLE NETWORK_FAILED NETWORK_ERROR DNS_RESOLUTION_FAILED"
        ),
        words=_words(_TRANSPORT, _NO_TEXT),
    ),
    FailureRule(
        "storage_failed",
        _WORKLOAD,
        "a managed volume could not be made or attached here",
        codes=_codes(
            "STORAGE_PROVISION_FAILED STORAGE_ATTACH_FAILED STORAGE_ERROR VOLUME_MOUNT_FAILED"
            " VOLUME_NOT_FOUND"
        ),
        node_bound=True,
    ),
    FailureRule(
        "storage_failed",
        _WORKLOAD,
        "the same, where only the text says so",
        words=_words(r"\bmanaged storage setup failed\b"),
        node_bound=True,
    ),
    FailureRule(
        "image_pull_failed",
        _WORKLOAD,
        "a pull that failed in no way known above",
        codes=_codes("IMAGE_PULL_FAILED"),
    ),
    FailureRule("vm_boot_failed", _WORKLOAD, "the agent's word", codes=_codes("VM_BOOT_FAILED")),
    FailureRule(
        "start_timeout",
        _WORKLOAD,
        "it was sent and never came up",
        codes=_codes("START_TIMEOUT"),
    ),
    FailureRule("create_failed", _WORKLOAD, "the agent's word", codes=_codes("CREATE_FAILED")),
    FailureRule("start_failed", _WORKLOAD, "the agent's word", codes=_codes("START_FAILED")),
    FailureRule("delete_failed", _WORKLOAD, "the agent's word", codes=_codes("DELETE_FAILED")),
    FailureRule(
        "resource_missing",
        _WORKLOAD,
        "the runtime lost it",
        codes=_codes("RUNTIME_RESOURCE_MISSING CONTAINER_NOT_FOUND VM_DOMAIN_NOT_FOUND"),
    ),
    FailureRule(
        "rejected",
        _WORKLOAD,
        "the agent said no in its own words: a failure of this workload on this node (R01)",
        codes=_codes("REJECTED"),
        node_bound=True,
    ),
    FailureRule("runtime_error", _WORKLOAD, "nothing more is known; the budget bounds it"),
)

FAILURE_CODES: frozenset[str] = frozenset(rule.code for rule in FAILURE_RULES)
"""Every code that ``classify_failure`` can give: a closed set, fit for a metric's label (M02)."""

_NODE_BOUND = frozenset(rule.code for rule in FAILURE_RULES if rule.node_bound)
_BRACKETED = re.compile(r"\[([A-Z][A-Z_]{2,40})\]")
_SAYS_NOTHING = _codes("RUNTIME_ERROR UNKNOWN_ERROR SYSTEM_ERROR UNSPECIFIED REJECTED") | {""}


def match_failure(code: str, text: str) -> FailureRule:
    """The first row of the table that takes ``code`` (any case) and ``text``; there always is one.

    Agents put a code in brackets into their texts; it is used where ``code`` says nothing.
    """
    looked_at = text[:_LOOKED_AT]
    known_code = _effective_code(code, looked_at)
    return next(rule for rule in FAILURE_RULES if rule.matches(known_code, looked_at))


def classify_failure(code: str, text: str, now: datetime) -> Failure:
    """What an agent's failure is, at ``now``; never raises, whatever the agent sent.

    The message is ``text`` without URL credentials, at most 1 KiB. The workload's own secrets must
    be out of ``text`` already (``retry.texts.presentable``).
    """
    rule = match_failure(code, text)
    message = text.strip() or f"the agent gave no text, only the code {code.strip() or 'FAILED'}"
    return Failure(rule.code, presentable(message), rule.kind, now)


def infrastructure_failure(code: str, text: str, now: datetime) -> Failure:
    """A failure that the scheduler met itself: agent unreachable, node lost, store away.

    ``code`` is one of the scheduler's own and stays as it is.
    """
    return Failure(code, presentable(text), FailureKind.INFRASTRUCTURE, now)


def is_node_bound(code: str) -> bool:
    """Whether a failure of this stable code is of the workload on one node, not everywhere."""
    return code in _NODE_BOUND


def _effective_code(code: str, text: str) -> str:
    name = re.sub(r"[\s-]+", "_", code.strip().upper()).removeprefix("FAILURE_REASON_")
    if name not in _SAYS_NOTHING:
        return name
    bracketed = _BRACKETED.search(text)
    return bracketed.group(1) if bracketed else name
