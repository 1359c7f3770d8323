"""People who share a device and have consented."""

from hearsay import Client, Person


def person(client: Client, name: str, level: str = "strict") -> Person:
    """Return somebody who takes part at a level."""
    somebody = client.person(name, level=level)
    somebody.grant()
    return somebody
