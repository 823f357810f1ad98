"""The simulated machines in a process of their own: `python -m proofs.chaos.machines …`.

Every machine serves its agent's gRPC API and beats; everything that happens on one is written to a
file, also while no scheduler is there. The control interface breaks and mends single machines.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import signal
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from attrs import evolve

from persys_agent.simulated.control_http import ControlServer
from persys_agent.simulated.fleet import FleetOptions, SimulatedFleet
from persys_core.sim.agent_settings import AgentSettings
from proofs.chaos.journal import text_of, upto_text
from tests.e2e.processes import quick_node

__all__ = ["main", "settings_of"]

LOOK_SECONDS = 0.05


def settings_of(number: int, cpu: int, memory: int) -> AgentSettings:
    """The machine ``n{number}``."""
    return evolve(
        quick_node(f"n{number}"),
        cpu_millicores=cpu,
        memory_mb=memory,
        boot_salt=f"{secrets.token_hex(8)}-",
    )


async def write_down(fleet: SimulatedFleet, sink: TextIO) -> None:
    """Write what is new on every machine, again and again; the last look is at its end."""
    written: dict[str, int] = {}

    def look() -> None:
        now = datetime.now(UTC)
        for node in fleet.nodes():
            model = fleet.model(node.node_id)
            model.catch_up(now)
            entries = model.journal.entries
            for entry in entries[written.get(node.node_id, 0) :]:
                sink.write(text_of(node.node_id, entry) + "\n")
            written[node.node_id] = len(entries)
        sink.write(upto_text(now) + "\n")
        sink.flush()

    try:
        while True:
            look()
            await asyncio.sleep(LOOK_SECONDS)
    finally:
        look()


async def serve(given: argparse.Namespace, sink: TextIO) -> None:
    """Run the machines until SIGTERM."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for end in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(end, stop.set)
    options = FleetOptions(nodes=0, scheduler=given.scheduler, seed=given.seed)
    async with SimulatedFleet(options) as fleet:
        for number in range(1, given.nodes + 1):
            await fleet.add(settings=settings_of(number, given.cpu, given.memory))
        control = ControlServer(fleet, given.control_port)
        await control.start()
        writing = asyncio.create_task(write_down(fleet, sink))
        print("machines run", flush=True)
        await stop.wait()
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        await control.stop()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run them as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--scheduler", required=True)
    parser.add_argument("--journal", required=True)
    parser.add_argument("--control-port", type=int, required=True)
    parser.add_argument("--cpu", type=int, default=4_000)
    parser.add_argument("--memory", type=int, default=65_536)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    with Path(given.journal).open("a") as sink:
        asyncio.run(serve(given, sink))


if __name__ == "__main__":
    main()
