"""The gRPC contracts of Persys. Everything named ``*_pb2*`` is generated; edit proto/ instead."""
