"""persys.control.v1: what agents and clients ask of the scheduler."""
