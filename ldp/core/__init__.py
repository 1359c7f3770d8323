"""Foundations of all mechanisms: exact integers, coins, channels, tallies, estimates, policies."""
