"""The connection to libvirt, where there is none."""

from __future__ import annotations

from datetime import timedelta
from typing import NoReturn

import pytest

from persys_agent.runtimes.port import Owner, RuntimeUnavailableError
from persys_agent.runtimes.vm.link import LibvirtLink
from persys_agent.runtimes.vm.runtime import LibvirtRuntime


def not_installed() -> NoReturn:
    raise ImportError("No module named 'libvirt'")


@pytest.mark.asyncio
async def test_without_the_module_there_are_no_machines() -> None:
    """The agent runs without libvirt's module; the capability says what to install."""
    runtime = LibvirtRuntime("qemu:///system", Owner("n1"), load=not_installed)
    capability = await runtime.probe()
    assert not capability.is_available
    assert "persys-agent[vm]" in capability.detail
    with pytest.raises(RuntimeUnavailableError):
        await runtime.inspect("w")
    await runtime.aclose()


@pytest.mark.asyncio
async def test_a_call_does_not_wait_for_ever() -> None:
    """What libvirt does not answer in time is no answer; the loop was free meanwhile."""
    link = LibvirtLink("qemu:///system", timedelta(seconds=0), not_installed)
    with pytest.raises(RuntimeUnavailableError, match="did not answer within 0 s"):
        await link.call(lambda connection: connection.getVersion())
    await link.aclose()
