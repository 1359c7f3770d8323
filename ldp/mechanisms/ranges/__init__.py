"""Mechanisms for shares of ranges, in one and two dimensions."""
