"""Redis: copies for people, and the stream of events. No decision reads what is kept here.

Decided here: nothing. ``link`` alone knows redis-py; ``outbox`` is the one way of writing;
``event_log`` and ``telemetry`` are the ports.
"""
