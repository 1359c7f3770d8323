"""Fixtures of the server's tests."""

from postgres import postgres, where

__all__ = ["postgres", "where"]
