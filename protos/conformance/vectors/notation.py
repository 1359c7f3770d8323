"""How the conformance vectors write values; README.md beside this package has the rules."""

import json
import struct
from collections.abc import Mapping, Sequence
from fractions import Fraction
from hashlib import sha256
from itertools import count
from typing import Any

from ldp import Coins, Mechanism
from ldp.core.randomizer import Randomizer
from ldp.mechanisms.numbers.mean import MeanMechanism


class Script(Coins):
    """Serve the bytes of one stream, however many are asked for at once, and count them.

    The stream is that of a seed, or the literal bytes.
    """

    def __init__(self, seed: bytes = b"", *, stream: bytes | None = None) -> None:
        self.used = 0
        self._seed = seed
        self._literal = stream is not None
        self._drawn = stream or b""
        self._blocks = 0

    def _bytes(self, count: int) -> bytes:
        end = self.used + count
        while len(self._drawn) < end:
            if self._literal:
                raise EOFError(f"the stream has {len(self._drawn)} bytes")
            block = sha256(self._seed + self._blocks.to_bytes(8, "little")).digest()
            self._drawn += block
            self._blocks += 1
        drawn = self._drawn[self.used : end]
        self.used = end
        return drawn


class Seeds:
    """Give each case of a file a seed of its own."""

    def __init__(self, file: str) -> None:
        self._numbers = count()
        self._head = sha256(file.encode()).digest()[:2]

    def next(self) -> bytes:
        """Return a seed of 5 bytes that no other case of the file has."""
        return self._head + next(self._numbers).to_bytes(3, "big")


def double(number: float) -> str:
    """Return a double's bits, the most significant first."""
    return struct.pack(">d", number).hex()


def integer(number: int) -> str:
    """Return an integer in decimal digits."""
    return str(int(number))


def fraction(number: Fraction) -> list[str]:
    """Return a fraction's numerator and denominator."""
    return [integer(number.numerator), integer(number.denominator)]


def integers(values: Mapping[str, Sequence[int]]) -> dict[str, list[str]]:
    """Return a mechanism's integers by name."""
    return {name: [integer(value) for value in each] for name, each in sorted(values.items())}


def mechanism(made: Randomizer) -> dict[str, Any]:
    """Return a mechanism's name, epsilon and integers."""
    return {
        "name": made.name,
        "epsilon": double(made.epsilon),
        "integers": integers(made.integers),
    }


def takes_numbers(made: Mechanism) -> bool:
    """Tell whether a mechanism randomises numbers in [-1, 1]."""
    return isinstance(made, MeanMechanism)


def written(content: Mapping[str, Any]) -> str:
    """Return a file's text: one case a line, so that a change of one is one line's."""
    parts = []
    for name, cases in content.items():
        lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
        parts.append(f"{json.dumps(name)}: [\n{lines}\n]")
    return "{\n" + ",\n".join(parts) + "\n}\n"
