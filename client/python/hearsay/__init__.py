"""Collect statistics under local differential privacy: the SDK for apps and analysts."""

from hearsay.analyst import Analyst
from hearsay.client import Client
from hearsay.transport import Unreachable
from ldp import InvalidInput

__all__ = ["Analyst", "Client", "InvalidInput", "Unreachable"]
