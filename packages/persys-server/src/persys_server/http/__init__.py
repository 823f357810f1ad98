"""Plain HTTP for probes and scrapers: ``/health``, ``/readyz`` and ``/metrics``."""
