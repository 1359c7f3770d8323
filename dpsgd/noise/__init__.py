"""Gaussian noise from a secure keystream, drawn, added and rounded in compiled code."""
