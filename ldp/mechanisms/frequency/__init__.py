"""Mechanisms whose reports give the frequencies of categories."""
