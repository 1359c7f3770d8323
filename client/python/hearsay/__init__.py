"""Collect statistics under local differential privacy: the SDK for apps and analysts."""

import logging

from hearsay.analyst import Analyst
from hearsay.choices import Caps
from hearsay.client import MEMORY, Client, Person
from hearsay.sender import Delivery
from hearsay.store import create_ledger
from hearsay.transport import Tls, Unreachable
from hearsay.trouble import Reason, Status
from ldp import InvalidInput

logging.getLogger("hearsay").addHandler(logging.NullHandler())

__all__ = [
    "MEMORY",
    "Analyst",
    "Caps",
    "Client",
    "Delivery",
    "InvalidInput",
    "Person",
    "Reason",
    "Status",
    "Tls",
    "Unreachable",
    "create_ledger",
]
