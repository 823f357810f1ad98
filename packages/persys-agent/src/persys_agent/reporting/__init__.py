"""What the node says of itself: what it can, what it uses, and that it is alive."""

from persys_agent.reporting.capabilities import Capabilities, detect_capabilities
from persys_agent.reporting.reporter import Presence, Reporter
from persys_agent.reporting.usage import UsageCollector

__all__ = [
    "Capabilities",
    "Presence",
    "Reporter",
    "UsageCollector",
    "detect_capabilities",
]
