"""The gRPC transport: thin servicers, one mapping, one table of errors, one boundary."""
