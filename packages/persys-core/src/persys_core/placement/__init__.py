"""Which node a workload goes to, and the reasons why no other does. Pure; nothing is written.

For a tool of your own: keep a ``Fleet`` up to date, ask a ``Placer``. ``simple_fleet``,
``simple_node`` and ``simple_request`` make the values from plain numbers.
"""

from persys_core.placement.explain import Explanation, ReasonCode
from persys_core.placement.fleet import Fleet
from persys_core.placement.placer import Placed, Placer, Unschedulable
from persys_core.placement.request import PlacementRequest
from persys_core.placement.reservations import Reservations
from persys_core.placement.simple import simple_fleet, simple_node, simple_request

__all__ = [
    "Explanation",
    "Fleet",
    "Placed",
    "PlacementRequest",
    "Placer",
    "ReasonCode",
    "Reservations",
    "Unschedulable",
    "simple_fleet",
    "simple_node",
    "simple_request",
]
