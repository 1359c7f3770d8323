"""Fixtures of the server's tests."""

from postgres import postgres, where
from stored import store

__all__ = ["postgres", "store", "where"]
