"""Answers that are kept, each by its question and the tallies that it is of."""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import astuple

from google.protobuf.message import Message

from hearsay_server.storage.packed import PackedTallies

_KEPT = 32 << 20
"""Bytes of all answers."""

Messages = Sequence[bytes]
"""The serialised messages of one answer."""


def key_of(question: Message, tallies: PackedTallies, also: Sequence[str] = ()) -> bytes:
    """Return a digest of a question and of what its answer depends on."""
    digest = hashlib.blake2b(type(question).__name__.encode(), digest_size=16)
    digest.update(question.SerializeToString(deterministic=True))
    digest.update(repr(list(also)).encode())
    for cohort, parts in tallies.packed.items():
        digest.update(repr((astuple(cohort), *map(len, parts))).encode())
        digest.update(b"".join(parts))
    return digest.digest()


class KeptAnswers:
    """The last answers, by the question and the tallies that they are of.

    No answer has to be dropped when reports come in: other tallies make another key.
    """

    def __init__(self) -> None:
        self._answers: OrderedDict[bytes, Messages] = OrderedDict()
        self._size = 0

    def get(self, key: bytes) -> Messages | None:
        """Return the answer of a key, which becomes the last to be forgotten."""
        if key in self._answers:
            self._answers.move_to_end(key)
        return self._answers.get(key)

    def keep(self, key: bytes, answer: Messages) -> None:
        """Keep an answer, unless it is larger than all of them may be."""
        if key in self._answers or _size(answer) > _KEPT:
            return
        self._answers[key] = answer
        self._size += _size(answer)
        while self._size > _KEPT:
            _, forgotten = self._answers.popitem(last=False)
            self._size -= _size(forgotten)


def _size(answer: Messages) -> int:
    return sum(map(len, answer))
