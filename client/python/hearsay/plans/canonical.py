"""Frozen messages: one serialisation each, so that a SHA-256 identifies what was declared."""

from google.protobuf.message import Message

from ldp import InvalidInput


def check_canonical(message: Message, data: bytes, what: str) -> None:
    """Raise `InvalidInput` unless `data` are the only bytes that this message is written as.

    `what` names the message for people, such as "plan". Unknown fields are taken out of it.
    """
    complete = message.SerializeToString(deterministic=True)
    message.DiscardUnknownFields()
    if message.SerializeToString(deterministic=True) != complete:
        raise InvalidInput(
            f"the {what} has fields that this version of hearsay does not know: "
            "use the version that the server has"
        )
    if complete != data:
        raise InvalidInput(
            f"these {len(data)} bytes are not the canonical serialisation of their {what}: "
            "expected fields in the order of their numbers, maps sorted by key, nothing twice"
        )
