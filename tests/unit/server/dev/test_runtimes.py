"""What runs the workloads of a demonstration, and what is said about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from attrs import define, field

from persys_core.model.errors import PersysError
from persys_proto.control.v1 import control_pb2 as pb
from persys_server.dev.runtimes import NoRuntimeError, Prepared, RuntimeWish, prepared

AUTO, DOCKER, SIMULATED = RuntimeWish


@define
class FakeDaemon:
    """A daemon with ``images`` and no network."""

    images: set[str] = field(factory=lambda: {"a", "b"})
    silent: bool = False
    left: int = 0
    cleared: int = 0

    async def version(self) -> str:
        if self.silent:
            raise PersysError("the Docker daemon at here does not answer")
        return "9.9"

    async def provide(self, image: str, say: Callable[[str], None]) -> str:
        return "" if image in self.images else "no such host"

    async def clear_away(self) -> int:
        self.cleared += 1
        return self.left


def container(name: str, image: str, port: int = 0) -> pb.ApplyWorkloadRequest:
    ports = [pb.Port(host_port=port, container_port=80)]
    return pb.ApplyWorkloadRequest(
        workload_id=name,
        spec=pb.WorkloadSpec(
            type="container", container=pb.ContainerSpec(image=image, ports=ports)
        ),
    )


MACHINE = pb.ApplyWorkloadRequest(workload_id="vm", spec=pb.WorkloadSpec(type="vm", vm=pb.VMSpec()))


async def made(
    wish: RuntimeWish, daemon: FakeDaemon, *requests: pb.ApplyWorkloadRequest
) -> tuple[Prepared, Sequence[str]]:
    """What is prepared, and what was said; port 80 is taken."""
    said: list[str] = []
    ready = await prepared(
        wish,
        "here",
        requests or (container("web", "a"),),
        open_daemon=lambda _: daemon,
        is_free=lambda port: port != 80,
        say=said.append,
    )
    return ready, said


@pytest.mark.asyncio
@pytest.mark.parametrize("wish", [AUTO, DOCKER])
async def test_docker_is_used_where_it_answers(wish: RuntimeWish) -> None:
    """The first line says so, with its version and place, and the summary says the same."""
    ready, said = await made(wish, FakeDaemon())
    assert ready.endpoint == "here"
    assert said == [ready.text] == ["Runtime: real containers, on Docker 9.9 at here."]
    assert not ready.needs_model


@pytest.mark.asyncio
async def test_without_docker_all_is_simulated() -> None:
    """And the first line says why."""
    ready, said = await made(AUTO, FakeDaemon(silent=True))
    assert ready.endpoint == ""
    assert said == [ready.text]
    assert "simulated, nothing really runs (the Docker daemon at here" in ready.text


@pytest.mark.asyncio
async def test_what_is_asked_for_is_not_replaced() -> None:
    """Docker that is away is an error then, and simulated asks no daemon."""
    with pytest.raises(NoRuntimeError, match="does not answer"):
        await made(DOCKER, FakeDaemon(silent=True))
    daemon = FakeDaemon()
    ready, _ = await made(SIMULATED, daemon)
    assert ready.endpoint == ""
    assert daemon.cleared == 0


@pytest.mark.asyncio
async def test_what_has_no_image_is_left_out_with_one_line() -> None:
    """The rest goes on; what is left out is well, since nobody can help it."""
    ready, said = await made(
        AUTO, FakeDaemon(), container("web", "a"), container("one", "c"), container("two", "c")
    )
    assert [each.workload_id for each in ready.requests] == ["web"]
    assert said[1:] == ["Image c cannot be had; left out: one, two (no such host)"]
    assert [each.subject for each in ready.left_out] == ["one", "two"]
    assert all(each.is_well for each in ready.left_out)


@pytest.mark.asyncio
async def test_without_any_image_all_is_simulated() -> None:
    """Where nobody insists on Docker; machines alone are nothing to show it with."""
    requests = (container("web", "c"), MACHINE)
    ready, said = await made(AUTO, FakeDaemon(), *requests)
    assert (ready.endpoint, tuple(ready.requests)) == ("", requests)
    assert "none of the images can be had" in said[-1]
    with pytest.raises(NoRuntimeError, match="none of the images"):
        await made(DOCKER, FakeDaemon(), *requests)


@pytest.mark.asyncio
async def test_machines_stay_simulated_with_a_word_about_it() -> None:
    """On a node of their own, beside the real ones."""
    ready, said = await made(AUTO, FakeDaemon(), container("web", "a"), MACHINE)
    assert ready.needs_model
    assert "simulated" in said[-1]


@pytest.mark.asyncio
async def test_ports_and_leftovers_are_told() -> None:
    """A port that somebody has is not fought for; what a killed demo left is removed first."""
    ready, said = await made(AUTO, FakeDaemon(left=2), container("web", "a", port=80))
    assert ready.requests[0].spec.container.ports[0].host_port == 0
    assert said[1:] == [
        "Removed 2 containers of a demo that was killed.",
        "Port 80 is taken here, so web gets any free one.",
    ]
