"""Mechanisms whose guarantee is a policy: each pair of values has its own distance."""
