"""What an agent counts (``families``), and where it is asked for it and its health (``server``)."""
