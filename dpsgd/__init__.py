"""Gaussian accounting and private training."""
