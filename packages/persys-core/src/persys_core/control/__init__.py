"""The application layer: use cases over ports, and the loops. The only place that awaits ports.

``requests`` and ``answers`` are what a transport speaks to it; ``scheduler`` wires one replica.
"""
