"""What drift is, and what is done about it. Pure."""
