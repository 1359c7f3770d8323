"""Mechanisms that protect pairs of values each at its own distance."""
