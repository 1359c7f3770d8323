"""Norms and clipped sums of per-sample gradients, from what layers saw."""
