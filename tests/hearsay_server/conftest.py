"""Fixtures of the server's tests."""

from postgres import postgres, where
from serving import address, survey
from stored import store

__all__ = ["address", "postgres", "store", "survey", "where"]
