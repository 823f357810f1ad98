"""What gives the host away is refused, in the file and in what was made of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from persys_agent.runtimes.compose.escapes import WAYS, check_file, check_made, sockets
from persys_agent.runtimes.port import FailureCode, RuntimeFailedError

FORBIDDEN = sockets("unix:///srv/d/d.sock")
HOOK = {"command": "x", "privileged": True}
REFUSED = [
    ("privileged", True, "true"),
    ("privileged", "", '""'),
    ("pid", "host", "host"),
    ("ipc", "host", "host"),
    ("userns_mode", "host", "host"),
    ("cap_add", ["CHOWN", "sys_admin", "CAP_NET_ADMIN"], "NET_ADMIN, SYS_ADMIN"),
    ("cap_add", ["ALL"], "ALL"),
    ("cap_add", ["SYS_MODULE", "SYS_PTRACE"], "SYS_MODULE, SYS_PTRACE"),
    ("cap_add", ["SYS_RAWIO", "DAC_READ_SEARCH"], "DAC_READ_SEARCH, SYS_RAWIO"),
    ("devices", ["/dev/sda:/dev/sda"], "/dev/sda:/dev/sda"),
    ("devices", [{"source": "/dev/sda"}], "/dev/sda"),
    ("device_cgroup_rules", ["a *:* rwm"], "a *:* rwm"),
    ("security_opt", ["seccomp:unconfined"], "seccomp:unconfined"),
    ("security_opt", ["apparmor=unconfined"], "apparmor=unconfined"),
    ("security_opt", ["label=disable"], "label=disable"),
    ("security_opt", ["label:type:spc_t"], "label:type:spc_t"),
    ("security_opt", ["no-new-privileges:false"], "no-new-privileges:false"),
    ("security_opt", ["no-new-privileges", "seccomp=p.json"], "seccomp=p.json"),
    ("cgroup_parent", "/", "/"),
    ("use_api_socket", True, "True"),
    ("provider", {"type": "model"}, "model"),
    ("post_start", [HOOK], "privileged"),
    ("pre_stop", [HOOK], "privileged"),
    ("build", {"privileged": True}, "privileged"),
    ("volumes", ["/srv/d/d.sock:/d.sock:ro"], "/srv/d/d.sock"),
    ("volumes", ["/srv/d:/x"], "/srv/d"),
    ("volumes", ["/srv/../srv/d/:/x"], "/srv/../srv/d/"),
    ("volumes", ["/:/host:ro"], "/"),
    ("volumes", [{"type": "bind", "source": "/var/run/docker.sock"}], "/var/run/docker.sock"),
]


@pytest.mark.parametrize(("key", "value", "told"), REFUSED)
def test_what_gives_the_host_away_is_refused(key: str, value: object, told: str) -> None:
    """With the service, the key, what of it, and the setting that allows it."""
    with pytest.raises(RuntimeFailedError) as raised:
        check_file({"good": {}, "web": {key: value}}, {}, FORBIDDEN)
    assert f"not allowed on this node: web: {key}: {told}; take it out" in str(raised.value)
    assert "allow_privileged" in str(raised.value)
    assert raised.value.code is FailureCode.INVALID_SPEC


def test_every_way_is_tried() -> None:
    """No row of the table is without a case here."""
    assert {each.key for each in WAYS} == {key for key, _, _ in REFUSED} - {"volumes"}


@pytest.mark.parametrize(
    "service",
    [
        {},
        {"privileged": False, "pid": "", "ipc": "shareable", "devices": [], "cap_add": None},
        {"network_mode": "host", "pid": "service:web", "cap_drop": ["ALL"]},
        {"cap_add": ["NET_BIND_SERVICE", "SYS_NICE"], "security_opt": ["no-new-privileges:true"]},
        {"build": {"context": "x"}, "post_start": [{"command": "x"}]},
        {"volumes": ["data:/data", "/srv/data:/x", "./run:/y", {"type": "tmpfs", "target": "/t"}]},
    ],
)
def test_the_rest_may_be(service: Mapping[str, object]) -> None:
    """What is only the container's own, the host's network, and other folders of the host."""
    check_file({"web": service}, {}, FORBIDDEN)


@pytest.mark.parametrize(
    "content",
    [
        {"volumes": {"v": {"driver_opts": {"o": "bind", "device": "/srv/d"}}}},
        {"secrets": {"s": {"file": "/srv/d/d.sock"}}},
        {"configs": {"c": {"file": "/srv/d/d.sock"}}},
    ],
)
def test_a_bind_by_another_name_is_one(content: Mapping[str, object]) -> None:
    """Named volumes, secrets and configs may be files of the host too."""
    with pytest.raises(RuntimeFailedError, match="/srv/d"):
        check_file({"web": {}}, content, FORBIDDEN)


def test_home_is_that_of_compose(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent without a home of its own gives Compose the root as one."""
    monkeypatch.delenv("HOME", raising=False)
    with pytest.raises(RuntimeFailedError, match="web: volumes: /srv/d"):
        check_file({"web": {"volumes": ["~/srv/d:/x"]}}, {}, FORBIDDEN)


def test_a_link_to_the_socket_is_the_socket(tmp_path: Path) -> None:
    """Whatever its name is."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    forbidden = sockets(f"unix://{tmp_path}/real/d.sock")
    with pytest.raises(RuntimeFailedError, match="link"):
        check_file({"web": {"volumes": [f"{tmp_path}/link:/x"]}}, {}, forbidden)


@pytest.mark.parametrize(
    ("shown", "told"),
    [
        ({"HostConfig": {"Privileged": True}}, "privileged: true"),
        ({"HostConfig": {"PidMode": "host"}}, "pid: host"),
        ({"HostConfig": {"IpcMode": "host"}}, "ipc: host"),
        ({"HostConfig": {"UsernsMode": "host"}}, "userns_mode: host"),
        ({"HostConfig": {"CapAdd": ["CAP_SYS_ADMIN"]}}, "cap_add: SYS_ADMIN"),
        ({"HostConfig": {"Devices": [{"PathOnHost": "/dev/sda"}]}}, "devices: /dev/sda"),
        ({"HostConfig": {"SecurityOpt": ["seccomp=unconfined"]}}, "security_opt: seccomp"),
        ({"Mounts": [{"Type": "bind", "Source": "/srv/d/d.sock"}]}, "volumes: /srv/d/d.sock"),
    ],
)
def test_what_was_made_is_looked_at_too(shown: Mapping[str, object], told: str) -> None:
    """Whatever words of a file led to it."""
    with pytest.raises(RuntimeFailedError, match=f"web: {told}"):
        check_made([("web", shown)], [], FORBIDDEN)


def test_an_ordinary_container_may_be_started() -> None:
    """As the Engine shows one that asks for nothing."""
    host = {
        "Privileged": False,
        "PidMode": "",
        "IpcMode": "private",
        "UsernsMode": "",
        "CapAdd": None,
        "Devices": [],
        "DeviceCgroupRules": None,
        "SecurityOpt": None,
    }
    mounts = [{"Type": "volume", "Source": "/srv/d"}, {"Type": "bind", "Source": "/srv/data"}]
    check_made([("web", {"HostConfig": host, "Mounts": mounts})], [], FORBIDDEN)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"type": "none", "o": "bind", "device": "/srv/x"}, "none, /srv/x, bind"),
        ({"type": "overlay", "device": "overlay", "o": "lowerdir=/run:/etc"}, "overlay, overlay"),
        ({"type": "ext4", "device": "/dev/sda1"}, "ext4, /dev/sda1"),
        ({"type": "nfs", "device": "/run", "o": "ro, BIND"}, "nfs, /run, bind"),
        ({"mountpoint": "/run"}, "of its own"),
        ("x", "of its own"),
    ],
)
def test_volumes_mount_nothing_of_the_host(options: object, told: str) -> None:
    """Neither as the file has them, nor as they were made; nobody's password is told."""
    with pytest.raises(RuntimeFailedError, match=f"volume v: driver_opts: {told};"):
        check_file({"web": {}}, {"volumes": {"v": {"driver_opts": options}}}, FORBIDDEN)
    shown = {"Mounts": [{"Type": "volume", "Name": "p_v"}]}
    with pytest.raises(RuntimeFailedError, match=f"volume p_v: driver_opts: {told};"):
        check_made([("web", shown)], [{"Name": "p_v", "Options": options}], FORBIDDEN)
    check_made([("web", {})], [{"Name": "p_v", "Options": options}], FORBIDDEN)


@pytest.mark.parametrize(
    "options",
    [
        None,
        {},
        {"type": "nfs", "o": "addr=192.0.2.1,rw", "device": ":/exported"},
        {"type": "cifs", "o": "username=u,password=$x", "device": "//192.0.2.1/share"},
        {"type": "tmpfs", "device": "tmpfs", "o": "size=10m"},
    ],
)
def test_volumes_of_the_network_and_of_memory_may_be(options: object) -> None:
    """As those without options."""
    check_file({"web": {}}, {"volumes": {"v": {"driver_opts": options}, "w": None}}, FORBIDDEN)
