"""The RPCs by topic. Each is three lines: message to request, one call, answer to message."""
