"""The version of all four packages, which are released together."""

__version__ = "0.1.0"
