"""What libvirt says of the host."""

import pytest

from persys_agent.runtimes.port import RuntimeUnavailableError
from persys_agent.runtimes.vm.host import Host, host_of


def capabilities(machines: str, arch: str = "x86_64", kinds: str = "qemu kvm") -> str:
    offered = "".join(f"<machine>{name}</machine>" for name in machines.split())
    domains = "".join(f"<domain type='{kind}'/>" for kind in kinds.split())
    return (
        "<capabilities><host><cpu><arch>x86_64</arch></cpu></host>"
        "<guest><os_type>hvm</os_type><arch name='i686'><emulator>/i</emulator></arch></guest>"
        f"<guest><os_type>hvm</os_type><arch name='{arch}'><emulator>/q</emulator>"
        f"{offered}{domains}</arch></guest></capabilities>"
    )


@pytest.mark.parametrize(
    ("machines", "expected"),
    [
        ("pc-i440fx-7.2 pc q35", "q35"),
        ("pc-1 pc", "pc"),
        ("a virt", "virt"),
        ("a b", "a"),
        ("", ""),
    ],
)
def test_the_machine_is_one_that_is_offered(machines: str, expected: str) -> None:
    """No machine type is fixed (defect 32)."""
    assert host_of(capabilities(machines)).machine == expected


def test_kvm_is_only_an_offer() -> None:
    """Until it is tried, guests are emulated."""
    assert host_of(capabilities("q35")) == Host("x86_64", "/q", "q35", "qemu", offers_kvm=True)
    assert not host_of(capabilities("q35", kinds="qemu")).offers_kvm


def test_no_emulator_is_no_answer() -> None:
    """A host without QEMU for its own architecture runs nothing, and says what to install."""
    with pytest.raises(RuntimeUnavailableError, match="install QEMU"):
        host_of(capabilities("q35", arch="aarch64"))
