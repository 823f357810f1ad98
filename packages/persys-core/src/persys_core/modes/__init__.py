"""Operating modes: when the control plane freezes, and what it may do then. Pure."""
