"""The machine that the agent runs on: what it is (``facts``), and what it uses (``usage``)."""
