"""Collect statistics under local differential privacy: the SDK for apps and analysts."""

from hearsay.agreement import Agreement
from hearsay.analyst import Analyst
from hearsay.anchors import Anchor, FileAnchor, KeyringAnchor
from hearsay.choices import Caps
from hearsay.client import MEMORY, Client
from hearsay.ledger import Recorded, Spending
from hearsay.new_ledger import create_ledger
from hearsay.outbox import Outbox, Sent
from hearsay.person import Person
from hearsay.sender import Delivery, DeliveryState
from hearsay.transport import Tls, Unreachable
from hearsay.trouble import Reason, Status
from ldp.errors import (
    HearsayError,
    InvalidInput,
    MissingExtra,
    NotReady,
    PlanRefused,
    StorageFailed,
)
from ldp.version import __version__ as __version__

__all__ = [
    "MEMORY",
    "Agreement",
    "Analyst",
    "Anchor",
    "Caps",
    "Client",
    "Delivery",
    "DeliveryState",
    "FileAnchor",
    "HearsayError",
    "InvalidInput",
    "KeyringAnchor",
    "MissingExtra",
    "NotReady",
    "Outbox",
    "Person",
    "PlanRefused",
    "Reason",
    "Recorded",
    "Sent",
    "Spending",
    "Status",
    "StorageFailed",
    "Tls",
    "Unreachable",
    "create_ledger",
]


def __dir__() -> list[str]:
    return sorted(__all__)
