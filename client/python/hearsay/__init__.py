"""Collect statistics under local differential privacy: the SDK for apps and analysts.

What an analyst needs is loaded when `Analyst` is first asked for: apps start without it.
"""

from typing import TYPE_CHECKING

from hearsay.agreement import Agreement
from hearsay.choices import Caps
from hearsay.client import MEMORY, Client
from hearsay.person import Person
from hearsay.recording.ledger import Recorded, Spending
from hearsay.recording.outbox import Outbox, Sent
from hearsay.sending.sender import Delivery, DeliveryState
from hearsay.sending.transport import Tls, Unreachable
from hearsay.storage.anchors import Anchor, FileAnchor, KeyringAnchor
from hearsay.storage.new_ledger import create_ledger
from hearsay.trouble import Reason, Status
from ldp.errors import (
    AnswerRefused,
    HearsayError,
    InvalidInput,
    MissingExtra,
    NotReady,
    PlanRefused,
    StorageFailed,
)
from ldp.lazy import lazy
from ldp.version import __version__ as __version__

if TYPE_CHECKING:
    from hearsay.asking.analyst import Analyst as Analyst

__all__ = [
    "MEMORY",
    "Agreement",
    "Anchor",
    "AnswerRefused",
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
__all__, __dir__, __getattr__ = lazy(__name__, {"hearsay.asking.analyst": "Analyst"}, eager=__all__)
