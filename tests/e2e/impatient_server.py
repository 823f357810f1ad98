"""`persys-server run` with a retry budget of seconds, which no setting has: a program of its own.

Everything else is as the environment and the command line say.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from datetime import timedelta

from attrs import evolve

from persys_core.control.config import SchedulerConfig, SchedulerPorts
from persys_core.control.scheduler import Scheduler
from persys_core.retry.policy import RetryPolicy
from persys_server.backends import open_ports
from persys_server.lifecycle import run_until_signal
from persys_server.observability.logging import configure_logging
from persys_server.settings import load_settings

IMPATIENT = RetryPolicy(
    base=timedelta(milliseconds=500), max_attempts=3, failure_grace=timedelta(milliseconds=100)
)


def scheduler(ports: SchedulerPorts, config: SchedulerConfig) -> Scheduler:
    """One that gives up soon."""
    return Scheduler(ports, evolve(config, retry=IMPATIENT))


def main() -> None:
    """Serve until a signal."""
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["run"])
    parser.add_argument("--insecure", action="store_true")
    parser.add_argument("--grpc-port", type=int, required=True)
    parser.add_argument("--metrics-port", type=int, required=True)
    given = parser.parse_args()
    settings = evolve(
        load_settings(os.environ), grpc_port=given.grpc_port, metrics_port=given.metrics_port
    )
    configure_logging(settings.log_level, settings.log_format, secrets=settings.secrets)
    asyncio.run(run_until_signal(settings, open_ports, scheduler))


if __name__ == "__main__":
    main()
