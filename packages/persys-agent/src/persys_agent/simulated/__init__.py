"""Simulated compute nodes on real sockets and real time, around the one pure model of an agent."""

from persys_agent.simulated.fleet import FleetNode, FleetOptions, SimulatedFleet

__all__ = ["FleetNode", "FleetOptions", "SimulatedFleet"]
