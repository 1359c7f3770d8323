"""Integers that stand for fractions where both sides must have the same number."""

BILLION = 1_000_000_000
"""The rho of a training is an integer of billionths: this many are 1."""
