"""The files of a NoCloud seed, made from a machine's spec.

Decided here: which of the spec's fields becomes which file, what is written where a field is empty,
and which texts are refused. Not decided here: how the files get to the guest (``image.py``).

* *user-data*: ``cloud_init.user_data``, else ``cloud_init_text``, else a cloud-config of the
  user name, the key and the password, else a script that does nothing.
* *meta-data*: as given, else instance id and host name.
* *network-config*: as given, else version 2 with the addresses that the spec's NICs ask for.
* *vendor-data*: as given, else none.

A machine has a seed as soon as any of these is given, or a NIC has a fixed address. What we write
ourselves is JSON, which is YAML too, so nothing that a user wrote can break out of its quotes.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping, Sequence

from attrs import field, frozen

from persys_agent.runtimes.machine.addresses import mac_address
from persys_agent.runtimes.port import FailureCode, RuntimeFailedError
from persys_core.model.ids import WorkloadId
from persys_core.model.spec import CloudInit, NetworkSpec, VmSpec

__all__ = ["MAX_BYTES", "Seed", "seed_of"]

MAX_BYTES = 256 * 1024
"""What one file, and what all of them together may have at most."""
_NOTHING_TO_DO = "#!/bin/sh\nexit 0\n"
_PREFIX_LENGTHS = {4: 24, 6: 64}


@frozen
class Seed:
    """The files; ``vendor_data`` is empty where there is none. Any of them may hold secrets."""

    user_data: str = field(repr=False)
    meta_data: str = field(repr=False)
    network_config: str = field(repr=False)
    vendor_data: str = field(default="", repr=False)

    def files(self) -> Mapping[str, bytes]:
        """The content by the name that cloud-init looks for."""
        named = {
            "user-data": self.user_data,
            "meta-data": self.meta_data,
            "network-config": self.network_config,
            "vendor-data": self.vendor_data,
        }
        return {name: text.encode() for name, text in named.items() if text}


def seed_of(workload_id: WorkloadId, vm: VmSpec) -> Seed | None:
    """The seed of a machine; ``None`` where its spec asks for none.

    Raises ``RuntimeFailedError`` with ``CLOUD_INIT_INVALID``; its text never quotes the data.
    """
    if not _is_wanted(vm):
        return None
    given = vm.cloud_init
    seed = Seed(
        user_data=given.user_data or vm.cloud_init_text or _user_data(given),
        meta_data=given.meta_data or _meta_data(workload_id, vm.name),
        network_config=given.network_config or _network_config(workload_id, vm.networks),
        vendor_data=given.vendor_data,
    )
    _check(seed)
    return seed


def _is_wanted(vm: VmSpec) -> bool:
    is_given = vm.cloud_init != CloudInit() or bool(vm.cloud_init_text)
    return is_given or any(network.static_ip for network in vm.networks)


def _user_data(given: CloudInit) -> str:
    config = _named_user(given) if given.username else _default_user(given)
    if not config:
        return _NOTHING_TO_DO
    if given.password:
        config |= {"ssh_pwauth": True, "chpasswd": {"expire": False}}
    return "#cloud-config\n" + _json(config)


def _named_user(given: CloudInit) -> dict[str, object]:
    user: dict[str, object] = {
        "name": given.username,
        "shell": "/bin/bash",
        "sudo": "ALL=(ALL) NOPASSWD:ALL",
        "lock_passwd": not given.password,
    }
    if given.password:
        user["plain_text_passwd"] = given.password
    if given.ssh_public_key:
        user["ssh_authorized_keys"] = [given.ssh_public_key]
    return {"users": ["default", user]}


def _default_user(given: CloudInit) -> dict[str, object]:
    config: dict[str, object] = {}
    if given.password:
        config["password"] = given.password
    if given.ssh_public_key:
        config["ssh_authorized_keys"] = [given.ssh_public_key]
    return config


def _meta_data(workload_id: WorkloadId, name: str) -> str:
    host = name or workload_id
    return _json({"instance-id": workload_id, "local-hostname": host, "hostname": host})


def _network_config(workload_id: WorkloadId, networks: Sequence[NetworkSpec]) -> str:
    if not any(network.static_ip for network in networks):
        ethernets: dict[str, object] = {"all": {"match": {"name": "e*"}, "dhcp4": True}}
    else:
        ethernets = {
            f"nic{index}": _ethernet(mac_address(workload_id, index, network), network)
            for index, network in enumerate(networks)
        }
    return _json({"version": 2, "ethernets": ethernets})


def _ethernet(mac: str, network: NetworkSpec) -> dict[str, object]:
    described: dict[str, object] = {
        "match": {"macaddress": mac},
        "dhcp4": network.dhcp or not network.static_ip,
    }
    if network.static_ip:
        described["addresses"] = [_with_prefix(network.static_ip)]
    return described


def _with_prefix(address: str) -> str:
    """An address without a prefix length lies in a network of the usual size: /24, or /64."""
    try:
        interface = ipaddress.ip_interface(address)
    except ValueError:
        raise _invalid(f"static ip {address!r} is no address") from None
    if "/" in address:
        return interface.with_prefixlen
    return f"{interface.ip}/{_PREFIX_LENGTHS[interface.version]}"


def _check(seed: Seed) -> None:
    total = 0
    for name, content in seed.files().items():
        if b"\0" in content:
            raise _invalid(f"{name} contains a NUL byte")
        if len(content) > MAX_BYTES:
            raise _invalid(f"{name} has {len(content)} bytes, at most {MAX_BYTES} are allowed")
        total += len(content)
    if total > MAX_BYTES:
        raise _invalid(f"all files together have {total} bytes, at most {MAX_BYTES} are allowed")


def _invalid(reason: str) -> RuntimeFailedError:
    return RuntimeFailedError(FailureCode.CLOUD_INIT_INVALID, f"cloud-init-invalid: {reason}")


def _json(document: Mapping[str, object]) -> str:
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"
