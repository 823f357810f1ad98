"""Announced: the nodes that presented themselves while nothing could be written.

Their agents try again for ever, so nothing here needs to last; but an operator who imports from
them has to know where they listen.
"""

from __future__ import annotations

from collections.abc import Mapping

from persys_core.control.requests import RegisterNode
from persys_core.model.ids import NodeId

__all__ = ["Announced"]


class Announced:
    """The newest registration per node, in this replica's memory."""

    def __init__(self) -> None:
        self._nodes: dict[NodeId, RegisterNode] = {}

    def note(self, request: RegisterNode) -> None:
        """A node presented itself and was refused."""
        self._nodes[request.node_id] = request

    def __contains__(self, node_id: NodeId) -> bool:
        """Whether the node presented itself."""
        return node_id in self._nodes

    @property
    def nodes(self) -> Mapping[NodeId, RegisterNode]:
        """All of them, by id."""
        return self._nodes

    def clear(self) -> None:
        """Nodes are taken in again: each comes by itself."""
        self._nodes.clear()
