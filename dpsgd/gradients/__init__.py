"""Norms and clipped sums of per-sample gradients, from layers' inputs and output gradients."""
