"""How the page's script reads a code that the SDK drew, to say what would leave.

It says the same as `describe.said`, which has the mechanism.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hearsay.plans.kinds import Domain, Grid, Numeric
from hearsay_server.surveys import revealing
from hearsay_server.surveys.describe import BEGINNING, FILTER, likeliest
from ldp import Mechanism, PolicyTable, PrefixHashing, SetBits, SetSelection
from ldp.core.mechanism import Counted
from ldp.mechanisms import (
    KRR,
    LOLOHA,
    RAPPOR,
    ChannelTable,
    CountMeanSketch,
    DBitFlip,
    HadamardCountMeanSketch,
    KRRChain,
    LocalHashing,
    PolicyMeanTable,
    PolicySubsets,
    PolicyUnary,
    SubsetSelection,
    SummingHistogram,
    UnaryChain,
    UnaryEncoding,
    Waves,
)
from ldp.mechanisms.numbers.mean import MeanMechanism

_CELLS = 1 << 16
"""The most entries of a channel that a page has for its script."""

_LABELS = 4096
"""The most labels that a script hashes for a code."""

Reading = dict[str, object]
"""What `static/reading.js` is told of a mechanism's codes: `form`, and what this form needs."""


def labels(domain: Domain | Grid) -> Sequence[str]:
    """Return the names that the places of a code stand for, as a page shows them."""
    return domain.places(": ")


def reading(domain: Domain | Grid, mechanism: Mechanism) -> Reading:
    """Return how the codes of a mechanism are read.

    - "one": the code is the place of a label, as an integer;
    - "mask": bit v is whether label v is named; one of `sure` gives the answer away, and is then
      all that is named;
    - "subsets": byte 0 is the type, then bit v is whether label v is in the subset; the labels of
      class c are named where `names[type][c]` holds, outside of the subset first; a type that
      `reveals` has gives the answer away;
    - "list": the places of labels, of `bytes` bytes each;
    - "answers": for each label that was asked, twice its place, and 1 more for yes, of `bytes`
      bytes each;
    - "levels": byte v is the level of label v, of which the highest count most;
    - "scores": code c counts as the number head[c]; beyond, as first + step (c - head's length);
      a code that `tells` has, if any, tells that the number is not in `outside`;
    - "table": code c speaks for the labels of[c], and gives the answer away where `reveals` has c;
    - "hash": code (a prime + b) buckets + y fits label v < k where h(v) = y, for the function h of
      `ldp.mechanisms.tools.hashing`;
    - "sketch": the number of a function of `functions`, and what is said of the `buckets`, into
      which it hashes the labels v < k: of `bytes` bytes, and a mask of buckets, or, without
      `bytes`, number `codes` + code, for a code of Hadamard response, which fits bucket v where
      the parity of (1 + code // 2) & v is code % 2;
    - "waves": code k j + s is pattern j, whose bins are moved on by s;
    - "filter": the group of `bytes` bytes, and a mask of `bits`, in these `words`;
    - "beginning": the place of one of `letters`, the function of 4 bytes and the bucket, in these
      `words`;
    - "code": the code names nothing.
    """
    match mechanism:
        case MeanMechanism():
            assert isinstance(domain, Numeric)
            return _scores(domain, mechanism)
        case KRR() | KRRChain():
            return {"form": "one"}
        case UnaryEncoding() | UnaryChain():
            return {"form": "mask", "sure": []}
        case PolicyUnary():
            sure = revealing.sure_bits(mechanism)
            classes = mechanism.promise.classes
            return {"form": "mask", "sure": [v for v, each in enumerate(classes) if each in sure]}
        case PolicySubsets():
            return {
                "form": "subsets",
                "classes": mechanism.promise.classes,
                "names": revealing.likeliest(mechanism),
                "reveals": revealing.revealing(mechanism),
            }
        case SubsetSelection():
            return _members(mechanism.k, mechanism.size, mechanism.code_bytes)
        case SetSelection():
            if mechanism.size == 1:
                return {"form": "one"}
            return _members(mechanism.tally_size, mechanism.size, mechanism.code_bytes)
        case SetBits() | DBitFlip():
            return {"form": "answers", "bytes": mechanism.code_dtype.itemsize}
        case SummingHistogram():
            return {"form": "levels"}
        case ChannelTable() | PolicyTable():
            return _table(mechanism, mechanism.matrix())
        case LocalHashing() | LOLOHA():
            if mechanism.k <= _LABELS and mechanism.prime**2 * mechanism.buckets <= 1 << 53:
                return {"form": "hash", **_hashing(mechanism)}
        case CountMeanSketch() | HadamardCountMeanSketch():
            if max(mechanism.k, mechanism.hashes) <= _LABELS:
                return _sketch(mechanism)
        case Waves():
            return _waves(mechanism)
        case RAPPOR():
            width = mechanism.device_bytes
            return {"form": "filter", "bytes": width, "bits": mechanism.bits, "words": FILTER}
        case PrefixHashing():
            letters, buckets = mechanism.lengths, mechanism.buckets
            words = {"letters": letters, "buckets": buckets, "words": BEGINNING}
            return {"form": "beginning", **words}
    is_small = mechanism.parameters * mechanism.tally_size <= _CELLS
    matrix = mechanism.matrix() if isinstance(mechanism, Counted) and is_small else None
    if matrix is not None:
        return {**_table(mechanism, matrix), "fits": True}
    return {"form": "code"}


def _members(n: int, size: int, width: int) -> Reading:
    each = 1 if n <= 256 else 2
    if -(-n // 8) <= size * each:
        assert width == -(-n // 8)
        return {"form": "mask", "sure": []}
    return {"form": "list", "bytes": each}


def _scores(domain: Numeric, mechanism: MeanMechanism) -> Reading:
    half = (domain.high - domain.low) / 2
    counts = [domain.low + half * (float(score) + 1) for score in mechanism.scores]
    # Codes go up in even steps but for a hybrid's first two, and a table's.
    head = len(counts) if len(counts) <= 256 else 2
    step = counts[head + 1] - counts[head] if head < len(counts) else 0.0
    first = counts[head] if head < len(counts) else 0.0
    outside: dict[str, object] = {}
    if isinstance(mechanism, PolicyMeanTable) and domain.sensitive:
        tells = revealing.telling(mechanism).any(axis=0)
        outside = {"tells": np.flatnonzero(tells).tolist(), "outside": regions(domain)}
    return {"form": "scores", "head": counts[:head], "first": first, "step": step, **outside}


def regions(domain: Numeric) -> str:
    """Return the regions of a number that are protected, in words."""
    return " or ".join(f"{low:,g} to {high:,g}" for low, high in domain.sensitive)


def _hashing(
    mechanism: LocalHashing | LOLOHA | CountMeanSketch | HadamardCountMeanSketch,
) -> Reading:
    names = ("prime", "buckets", "k")
    return {"fits": True} | {name: getattr(mechanism, name) for name in names}


def _sketch(mechanism: CountMeanSketch | HadamardCountMeanSketch) -> Reading:
    split = (
        {"bytes": 4}
        if isinstance(mechanism, CountMeanSketch)
        else {"codes": mechanism.tally_size // mechanism.hashes}
    )
    functions = mechanism.coefficients.T.tolist()
    return {"form": "sketch", "functions": functions, **split, **_hashing(mechanism)}


def _table(mechanism: Mechanism, matrix: NDArray[np.float64]) -> Reading:
    most, reveals = likeliest(mechanism, matrix)
    of = [np.flatnonzero(column).tolist() for column in most.T]
    return {"form": "table", "of": of, "reveals": np.flatnonzero(reveals).tolist()}


def _waves(mechanism: Waves) -> Reading:
    words = -(-mechanism.k // 64)
    patterns = []
    for at in range(0, len(mechanism.masks), words):
        mask = sum(word << 64 * n for n, word in enumerate(mechanism.masks[at : at + words]))
        patterns.append([v for v in range(mechanism.k) if mask >> v & 1])
    return {"form": "waves", "sides": list(mechanism.sides), "patterns": patterns}
