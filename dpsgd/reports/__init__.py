"""Devices' reports as training data: rows, likelihoods, losses, labels, guarantees."""
