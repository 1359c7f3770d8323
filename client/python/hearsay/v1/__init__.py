"""The wire: generated from protos/hearsay/v1 by `make protos`."""
