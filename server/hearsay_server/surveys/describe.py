"""What a randomised code says by itself: as places of labels, and in words.

The script of a survey's page says the same of the codes that it draws: see `readings`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hearsay.plans.kinds import ByKind, Domain, Grid, Numeric
from hearsay.plans.regions import in_words
from hearsay_server.surveys import revealing
from ldp import RAPPOR, DBitFlip, Mechanism, PrefixHashing, SetBits, SetSelection
from ldp.core.mechanism import FrequencyOracle
from ldp.mechanisms import PolicyMeanTable, PolicySubsets, PolicyTable, PolicyUnary

_NAMED = 8
"""Values that are named."""

FILTER = "{set} of {bits} bits are set, by the hash functions of group {group}"
"""What a code of `RAPPOR` says."""

BEGINNING = (
    "one in {buckets} of all beginnings of {letters} letters, by the hash function {function}"
)
"""What a code of `PrefixHashing` says."""


@dataclass(frozen=True)
class Said:
    """What a code says: of labels, by their places, or in `words`.

    `how` it speaks for the labels: it "says" those that it supports, "reveals" what nobody with
    another answer sends, is "most likely for" some, or "counts most for" them. It says no to the
    labels at `denied`, None of a mechanism that asks no label yes or no.
    """

    places: tuple[int, ...] = ()
    how: str = "says"
    denied: tuple[int, ...] | None = None
    words: str = ""


def said(mechanism: Mechanism, codes: bytes) -> Said:
    """Return what one encoded code of values, items or words says by itself."""
    code = mechanism.decode(codes, 1)
    tally = mechanism.tally(code)
    match mechanism:
        case RAPPOR():
            reports, ones = mechanism.counts(tally)
            group, bits = reports.argmax(), mechanism.bits
            return Said(words=FILTER.format(set=ones.sum(), bits=bits, group=group))
        case PrefixHashing():
            letters, function = mechanism.lengths[code["group"][0]], code["seed"][0]
            buckets = mechanism.buckets
            words = BEGINNING.format(buckets=buckets, letters=letters, function=function)
            return Said(words=words)
        case DBitFlip() | SetBits():
            no, yes = tally.counts.reshape(-1, 2).T > 0
            return Said(_places(yes), denied=_places(no))
        case PolicyUnary() | PolicySubsets():
            which, sure = revealing.named(mechanism, tally)
            return Said(_places(which), "reveals" if sure else "says")
        case SetSelection():
            return Said(_places(tally.counts > 0))
        case FrequencyOracle():
            return Said(_places(mechanism.supports(tally) > 0))
    if (matrix := mechanism.matrix()) is not None:
        most, reveals = likeliest(mechanism, matrix[:, tally.counts > 0])
        return Said(_places(most[:, 0]), "reveals" if reveals[0] else "most likely for")
    weights = mechanism.debias(tally)  # how much this report adds to each value's estimate
    return Said(_places(_largest(weights)), "counts most for")


def likeliest(
    mechanism: Mechanism, chances: NDArray[np.float64]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return for which values codes are the likeliest, and which codes reveal these values.

    `chances` are columns of the mechanism's channel, shape (values, codes).
    """
    most = _largest(chances)
    reveals = np.all(most | (chances == 0), axis=0) & isinstance(mechanism, PolicyTable)
    return most, np.asarray(reveals)


def describe(domain: Domain | Grid, mechanism: Mechanism, codes: bytes) -> str:
    """Return one encoded code in hex, with what it says by itself, in words.

    Of a code that supports some values: these; where a policy lets it reveal one, this one alone,
    and of a policy's subset the values for which it is the likeliest. Of a number: what it counts
    as. Of a table: the values for which the code is the most likely, or, where it keeps a policy
    and the code is impossible for all others, that it reveals them. Of others: the values to whose
    estimates the code adds most.
    """
    raw = codes.hex(" ") if len(codes) <= 8 else f"{codes[:8].hex(' ')} ..."
    return f"{raw}  {_SAYS[domain](domain, mechanism, codes)}"


def _of_labels(domain: Domain | Grid, mechanism: Mechanism, codes: bytes) -> str:
    told = said(mechanism, codes)
    names = _names(domain, mechanism)
    yes = _listed(names, told.places)
    if told.denied is None:
        words = yes or "none"
    elif isinstance(mechanism, SetBits):
        words = f"{yes}, yes" if yes else f"{_listed(names, told.denied)}, no"
    else:
        both = (("yes", yes), ("no", _listed(names, told.denied)))
        words = "; ".join(f"{answer} to {which}" for answer, which in both if which)
    return f"{told.how}: {words}"


def _of_words(domain: Domain | Grid, mechanism: Mechanism, codes: bytes) -> str:
    told = said(mechanism, codes)
    return f"{told.how}: {told.words}"


def _of_number(domain: Numeric, mechanism: Mechanism, codes: bytes) -> str:
    tally = mechanism.tally(mechanism.decode(codes, 1))
    share = (float(mechanism.debias(tally)[0]) + 1) / 2
    words = f"counts as {domain.low + share * (domain.high - domain.low):.4g}"
    if isinstance(mechanism, PolicyMeanTable) and domain.sensitive:
        (place,) = np.flatnonzero(tally.counts)
        if revealing.telling(mechanism)[:, place].any():
            words += f", tells: not in {' or '.join(map(in_words, domain.sensitive))}"
    return words


_SAYS: ByKind[Callable[[Any, Mechanism, bytes], str]] = ByKind(
    category=_of_labels,
    number=_of_number,
    bins=_of_labels,
    set=_of_labels,
    ratings=_of_labels,
    words=_of_words,
    grid=_of_labels,
)


def _names(domain: Domain | Grid, mechanism: Mechanism) -> Sequence[str]:
    """Return the names of the places that a code may speak for."""
    if not isinstance(mechanism, SetSelection):
        return domain.labels
    blanks = [f"{size} or fewer" for size in reversed(range(mechanism.most))]
    return [*domain.places(" "), *blanks]


def _places(chosen: NDArray[np.bool_]) -> tuple[int, ...]:
    return tuple(np.flatnonzero(chosen).tolist())


def _largest(numbers: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Tell which numbers are the largest of their column, but for rounding."""
    edge = numbers.max(axis=0) - 1e-9 * np.abs(numbers).max(axis=0)
    largest: NDArray[np.bool_] = numbers >= edge
    return largest


def _listed(names: Sequence[str], places: Sequence[int]) -> str:
    """Return the labels at some places in words; of many the first and how many more there are."""
    named = [names[place] for place in places[:_NAMED]]
    if more := len(places) - len(named):
        named.append(f"{more:,} more")
    return " or ".join(named)
