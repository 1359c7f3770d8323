"""The server process: gRPC services, who may call them, health, metrics, TLS."""
