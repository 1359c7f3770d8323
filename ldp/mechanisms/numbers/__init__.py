"""Mechanisms whose reports give the mean of a number."""
