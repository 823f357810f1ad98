"""What stands in the files of a seed."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
import yaml

from persys_agent.runtimes.cloud_init.seed import MAX_BYTES, Seed, seed_of
from persys_agent.runtimes.port import FailureCode, RuntimeFailedError
from persys_core.model.spec import CloudInit, NetworkSpec, VmSpec

EMPTY = CloudInit()


def machine(
    cloud_init: CloudInit = EMPTY,
    text: str = "",
    networks: tuple[NetworkSpec, ...] = (),
    name: str = "",
) -> VmSpec:
    return VmSpec(1, 64, cloud_init=cloud_init, cloud_init_text=text, networks=networks, name=name)


def seeded(vm: VmSpec) -> Seed:
    seed = seed_of("w-1", vm)
    assert seed is not None
    return seed


def test_no_wish_is_no_seed() -> None:
    """A machine that asks for nothing has no seed."""
    assert seed_of("w-1", machine(networks=(NetworkSpec(network="default"),))) is None


@pytest.mark.parametrize(
    "given",
    [
        CloudInit(network_config="version: 2"),
        CloudInit(vendor_data="#cloud-config\n"),
        CloudInit(meta_data="instance-id: x"),
        CloudInit(ssh_public_key="ssh-ed25519 AAAA"),
    ],
)
def test_any_field_is_a_wish(given: CloudInit) -> None:
    """No field is skipped for being alone (defect 32)."""
    seed = seeded(machine(given))
    texts = [seed.user_data, seed.meta_data, seed.network_config, seed.vendor_data]
    expected = given.network_config or given.vendor_data or given.meta_data or given.ssh_public_key
    assert any(expected in text for text in texts)


def test_user_data_has_an_order() -> None:
    """``user_data``, else the plain text, else the named fields, else a script of nothing."""
    both = machine(CloudInit(user_data="first", username="u"), "second")
    assert seeded(both).user_data == "first"
    assert seeded(machine(CloudInit(username="u"), "second")).user_data == "second"
    assert "users" in seeded(machine(CloudInit(username="u"))).user_data
    assert seeded(machine(CloudInit(vendor_data="v"))).user_data == "#!/bin/sh\nexit 0\n"


def cloud_config(given: CloudInit) -> Mapping[str, object]:
    text = seeded(machine(given)).user_data
    assert text.startswith("#cloud-config\n")
    read = yaml.safe_load(text)
    assert isinstance(read, dict)
    return read


def test_a_named_user_is_made() -> None:
    """User name, key and password become a user that may log in with both."""
    config = cloud_config(CloudInit(username="ada", ssh_public_key="ssh-rsa K", password="p: 'x"))
    assert config["users"] == [
        "default",
        {
            "name": "ada",
            "shell": "/bin/bash",
            "sudo": "ALL=(ALL) NOPASSWD:ALL",
            "lock_passwd": False,
            "plain_text_passwd": "p: 'x",
            "ssh_authorized_keys": ["ssh-rsa K"],
        },
    ]
    assert config["ssh_pwauth"] is True
    assert config["chpasswd"] == {"expire": False}


def test_without_a_name_the_default_user_gets_the_key() -> None:
    """Key and password alone are those of the image's own user; no password login without one."""
    assert cloud_config(CloudInit(ssh_public_key="ssh-rsa K")) == {
        "ssh_authorized_keys": ["ssh-rsa K"]
    }
    assert cloud_config(CloudInit(password="secret"))["password"] == "secret"


@pytest.mark.parametrize(
    "name", ["web", "a\nruncmd: [evil]", 'quote"', "\N{SNOWMAN}\N{PILE OF POO}"]
)
def test_names_cannot_break_out(name: str) -> None:
    """What we write is read back by a YAML reader as it was meant, whatever the name."""
    read = yaml.safe_load(seeded(machine(CloudInit(vendor_data="v"), name=name)).meta_data)
    assert read == {"instance-id": "w-1", "local-hostname": name, "hostname": name}


def test_the_id_stands_in_for_a_name() -> None:
    """A machine without a name is called by its id."""
    assert json.loads(seeded(machine(text="x")).meta_data)["hostname"] == "w-1"


def ethernets(*networks: NetworkSpec) -> Mapping[str, Mapping[str, object]]:
    read = yaml.safe_load(seeded(machine(text="x", networks=networks)).network_config)
    assert read["version"] == 2
    found: Mapping[str, Mapping[str, object]] = read["ethernets"]
    return found


def test_networks_are_dhcp_by_default() -> None:
    """Without a fixed address every Ethernet interface asks for one."""
    assert ethernets(NetworkSpec()) == {"all": {"match": {"name": "e*"}, "dhcp4": True}}


def test_a_fixed_address_is_set() -> None:
    """A NIC's fixed address reaches the guest, by the NIC's hardware address (defect 32)."""
    found = ethernets(
        NetworkSpec(static_ip="192.0.2.7", mac_address="52:54:00:00:00:07"),
        NetworkSpec(static_ip="2001:db8::7/56", dhcp=True, mac_address="52:54:00:00:00:08"),
        NetworkSpec(mac_address="52:54:00:00:00:09"),
    )
    assert found["nic0"] == {
        "match": {"macaddress": "52:54:00:00:00:07"},
        "dhcp4": False,
        "addresses": ["192.0.2.7/24"],
    }
    assert (found["nic1"]["addresses"], found["nic1"]["dhcp4"]) == (["2001:db8::7/56"], True)
    assert "addresses" not in found["nic2"]


def test_a_fixed_address_alone_is_a_wish() -> None:
    """A machine with nothing but a fixed address has a seed, which sets it."""
    assert seed_of("w-1", machine(networks=(NetworkSpec(static_ip="192.0.2.7"),))) is not None


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (CloudInit(user_data="secret\0"), "user-data contains a NUL byte"),
        (CloudInit(vendor_data="secret" * MAX_BYTES), "vendor-data has"),
        (
            CloudInit(user_data="s" * (MAX_BYTES - 9), vendor_data="secret" * 9),
            "all files together have",
        ),
    ],
)
def test_what_is_too_large_or_no_text_is_refused(given: CloudInit, reason: str) -> None:
    """Limits are those of the reference; the error begins as its does and quotes nothing."""
    with pytest.raises(RuntimeFailedError) as raised:
        seed_of("w-1", machine(given))
    text = str(raised.value)
    assert raised.value.code is FailureCode.CLOUD_INIT_INVALID
    assert text.startswith(f"cloud-init-invalid: {reason}")
    assert "secret" not in text


def test_the_limit_itself_is_allowed() -> None:
    """One file of almost 256 KiB passes, counted in bytes."""
    assert seeded(machine(CloudInit(user_data="\N{SNOWMAN}" * 80_000))).user_data


def test_a_wrong_address_is_refused() -> None:
    """A fixed address that is none is found before anything is made."""
    with pytest.raises(RuntimeFailedError, match="cloud-init-invalid: static ip 'x' is no address"):
        seed_of("w-1", machine(networks=(NetworkSpec(static_ip="x"),)))


def test_a_seed_hides_itself() -> None:
    """Its repr shows nothing of it."""
    assert "secret" not in repr(seeded(machine(text="secret")))
