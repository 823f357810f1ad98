"""Where managed volumes live: one port, one file per driver."""
