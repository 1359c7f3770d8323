"""The HTTP door: Connect and gRPC-Web for the same services, and probes and metrics."""
