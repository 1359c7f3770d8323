"""Gaussian noise from a secure keystream, made, rounded and added in compiled code."""
