#!/usr/bin/env python3
"""Ends with 0 where the scheduler of this container serves: it answers /readyz with 200 in time."""

import http.client
import os
import sys

port = int(os.environ.get("METRICS_PORT") or "8084")
connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
try:
    connection.request("GET", "/readyz")
    sys.exit(connection.getresponse().status != 200)
except OSError as error:
    sys.exit(f"/readyz on port {port} does not answer: {error}")
