"""Fixtures of the server's tests."""

from collected import own
from postgres import postgres, where
from serving import address, survey
from stored import store

__all__ = ["address", "own", "postgres", "store", "survey", "where"]
