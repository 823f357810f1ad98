"""What of a Compose file gives the host away, and is refused unless the operator allows it.

Decided here: the ways, in one table. They are looked for in the file, so that it is refused before
anything is done; in what Compose understands of it, since a file may say things in ways that are
not understood here; and in what the Engine made of it, before that is started. ``network_mode:
host`` is none of them: it shows the host's ports, and gives no right. Of the host's folders only
the daemon's socket counts here, which is the whole host: whoever may mount the others has ways to
the host too, so this table keeps mistakes and the obvious, and is no wall.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from attrs import frozen

from persys_agent.runtimes.compose.paths import mounted_paths
from persys_agent.runtimes.compose.reading import word
from persys_agent.runtimes.docker.documents import Document, at, document, items, text
from persys_agent.runtimes.port import FailureCode, RuntimeFailedError

__all__ = ["WAYS", "Way", "check_file", "check_made", "sockets"]

_HARMLESS = frozenset(
    "AUDIT_WRITE CHOWN DAC_OVERRIDE FOWNER FSETID KILL MKNOD NET_BIND_SERVICE NET_RAW SETFCAP"
    " SETGID SETPCAP SETUID SYS_CHROOT IPC_LOCK IPC_OWNER LEASE NET_BROADCAST SYS_NICE SYS_RESOURCE"
    " WAKE_ALARM".split()
)
"""Docker's own choice for every container, and what concerns only the container itself."""
_NO = (None, False, "false", "no", "", 0)
_SOCKETS = ("/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock")
_MOST_SHOWN, _MOST_SHOWN_CHARACTERS = 10, 200
_NETWORKED = frozenset(("nfs", "nfs4", "cifs", "tmpfs"))
_BINDING = frozenset(("bind", "rbind", "remount"))
"""Options of a mount that make its type of no account."""
_ADVICE = "take it out of the Compose file, or have the node's operator set allow_privileged"


@frozen
class Way:
    """One key of a service. ``gives`` names what of its value gives the host away, empty where
    nothing does; ``field`` is where the Engine has the same value, in ``HostConfig``."""

    key: str
    gives: Callable[[object], str]
    field: str = ""


def _plain(value: object) -> str:
    return "" if value in _NO else word(value)


def _not_plainly_no(value: object) -> str:
    """A text may become true in Compose: only a plain *no* is one."""
    if value is True:
        return "true"
    return "" if value in (None, False, "false", "no") else word(value) or '""'


def _of_the_host(value: object) -> str:
    return "host" if word(value).strip().lower() == "host" else ""


def _anything(value: object) -> str:
    return ", ".join(map(_entry, _entries(value)))


def _capabilities(value: object) -> str:
    asked = [each.upper().removeprefix("CAP_") for each in map(word, _entries(value))]
    return ", ".join(sorted(set(asked) - _HARMLESS))


def _security(value: object) -> str:
    """Profiles and labels are refused whole: which of them are weaker cannot be told here."""
    return ", ".join(each for each in map(word, _entries(value)) if not _is_stricter(each))


def _is_stricter(option: str) -> bool:
    name, _, value = option.replace("=", ":", 1).partition(":")
    return name == "no-new-privileges" and value.strip().lower() in ("", "true")


def _privileged_hooks(value: object) -> str:
    hooks = [each for each in _entries(value) if isinstance(each, Mapping)]
    return "privileged" if any(_not_plainly_no(each.get("privileged")) for each in hooks) else ""


def _builds(value: object) -> str:
    if not isinstance(value, Mapping):
        return ""
    return "privileged" if _not_plainly_no(value.get("privileged")) else ""


WAYS: Sequence[Way] = (
    Way("privileged", _not_plainly_no, "Privileged"),
    Way("pid", _of_the_host, "PidMode"),
    Way("ipc", _of_the_host, "IpcMode"),
    Way("userns_mode", _of_the_host, "UsernsMode"),
    Way("cap_add", _capabilities, "CapAdd"),
    Way("devices", _anything, "Devices"),
    Way("device_cgroup_rules", _anything, "DeviceCgroupRules"),
    Way("security_opt", _security, "SecurityOpt"),
    Way("cgroup_parent", _plain),  # another's limits, or none
    Way("use_api_socket", _plain),
    Way("provider", _anything),  # runs a program of the host
    Way("post_start", _privileged_hooks),
    Way("pre_stop", _privileged_hooks),
    Way("build", _builds),
)


def sockets(endpoint: str) -> frozenset[PurePosixPath]:
    """Where the daemon of ``endpoint`` may listen, by every name that is known."""
    scheme, _, path = endpoint.partition("://")
    known = {*_SOCKETS, *([path] if scheme == "unix" else [])}
    return frozenset(map(PurePosixPath, known | set(map(os.path.realpath, known))))


def check_file(
    services: Mapping[str, Document], content: Document, forbidden: frozenset[PurePosixPath]
) -> None:
    """Raises ``RuntimeFailedError`` for what stands in a Compose file. Looks links up."""
    found = [
        f"{name}: {way.key}: {given}"
        for name, service in services.items()
        for way in WAYS
        if (given := way.gives(service.get(way.key)))
    ]
    mounted = list(mounted_paths(services, content))
    absolute = {each.path for each in mounted if os.path.isabs(each.path)}
    giving = {each for each in absolute if _gives_socket(each, forbidden)}
    found += [f"{each.where}: {each.key}: {each.path}" for each in mounted if each.path in giving]
    for name in document(content, "volumes"):
        found += _mounting(name, at(content, "volumes", name, "driver_opts"))
    _refuse(found)


def check_made(
    containers: Iterable[tuple[str, Document]],
    volumes: Iterable[Document],
    forbidden: frozenset[PurePosixPath],
) -> None:
    """Raises ``RuntimeFailedError`` for what the Engine made of it: services, and how it shows
    their containers and the project's volumes. One that no container mounts does not count."""
    made = list(containers)
    found = [told for service, shown in made for told in _made(service, shown, forbidden)]
    mounted = {text(each, "Name") for _, shown in made for each in items(shown, "Mounts")}
    for volume in volumes:
        if (name := text(volume, "Name")) in mounted:
            found += _mounting(name, volume.get("Options"))
    _refuse(found)


def _mounting(volume: str, options: object) -> Iterator[str]:
    """What a volume mounts: nothing but what comes over the network, or is memory. All else may be
    any folder or disk of the host, by ways (``overlay``) that nobody counts."""
    if not options:
        return
    given = options if isinstance(options, Mapping) else {}
    kind = word(given.get("type") or "").lower()
    flags = frozenset(each.strip().lower() for each in word(given.get("o") or "").split(","))
    if kind not in _NETWORKED or flags & _BINDING:
        told = (kind, word(given.get("device") or ""), *sorted(flags & _BINDING))  # no passwords
        yield f"volume {volume}: driver_opts: {', '.join(filter(None, told)) or 'of its own'}"


def _made(service: str, shown: Document, forbidden: frozenset[PurePosixPath]) -> Iterator[str]:
    host = document(shown, "HostConfig")
    for way in WAYS:
        if way.field and (given := way.gives(at(host, way.field))):
            yield f"{service}: {way.key}: {given}"
    for mount in items(shown, "Mounts"):
        source = text(mount, "Source")
        if text(mount, "Type") == "bind" and _gives_socket(source, forbidden):
            yield f"{service}: volumes: {source}"


def _gives_socket(path: str, forbidden: frozenset[PurePosixPath]) -> bool:
    """The socket itself, or a folder that it is in; what cannot be followed may be either."""
    try:
        real = os.path.realpath(path)
    except OSError:
        return True
    seen = {PurePosixPath(os.path.normpath(path)), PurePosixPath(real)}
    return any(each == socket or each in socket.parents for each in seen for socket in forbidden)


def _refuse(found: Sequence[str]) -> None:
    if found:
        told = sorted(set(found))
        shown = "; ".join(each[:_MOST_SHOWN_CHARACTERS] for each in told[:_MOST_SHOWN])
        more = f"; and {len(told) - _MOST_SHOWN} more" if len(told) > _MOST_SHOWN else ""
        raise RuntimeFailedError(
            FailureCode.INVALID_SPEC,
            f"what gives the host away is not allowed on this node: {shown}{more}; {_ADVICE}",
        )


def _entries(value: object) -> Sequence[object]:
    if value in _NO:
        return ()
    return value if isinstance(value, list) else (value,)


def _entry(value: object) -> str:
    """A device as the file or the Engine has it."""
    if not isinstance(value, Mapping):
        return word(value)
    return word(value.get("PathOnHost") or value.get("source") or value.get("type") or "yes")
