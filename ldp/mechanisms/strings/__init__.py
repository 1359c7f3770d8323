"""Randomizers of words over a small alphabet."""
