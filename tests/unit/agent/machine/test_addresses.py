"""The hardware addresses of NICs."""

import pytest

from persys_agent.runtimes.machine.addresses import mac_address
from persys_agent.runtimes.port import FailureCode, RuntimeFailedError
from persys_core.model.spec import NetworkSpec


def test_an_open_address_is_always_the_same() -> None:
    """It depends on the workload and the NIC's place alone, and is never empty (defect 32)."""
    first = mac_address("w", 0, NetworkSpec())
    assert first == mac_address("w", 0, NetworkSpec(network="other"))
    assert first.startswith("52:54:00:")
    assert len({first, mac_address("w", 1, NetworkSpec()), mac_address("v", 0, NetworkSpec())}) == 3


def test_a_given_address_is_taken() -> None:
    """Whatever its case and its separators."""
    assert mac_address("w", 0, NetworkSpec(mac_address=" 52-54-00-AB-CD-EF")) == "52:54:00:ab:cd:ef"


@pytest.mark.parametrize(
    "text", ["x", "52:54:00:ab:cd", "01:00:5e:00:00:01", "52:54:00:ab:cd:ef:01"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    """Nonsense, and addresses of groups, are errors of the spec."""
    with pytest.raises(RuntimeFailedError) as raised:
        mac_address("w", 0, NetworkSpec(mac_address=text))
    assert raised.value.code is FailureCode.INVALID_SPEC
