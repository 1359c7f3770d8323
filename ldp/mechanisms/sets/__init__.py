"""Mechanisms of sets of items, and of ratings as sets of signed items."""
