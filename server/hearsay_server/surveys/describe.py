"""A randomised code, in words."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hearsay.plans.domains import Categorical, Domain, Grid, Numeric, Ratings, SetOf, Strings
from hearsay.plans.regions import in_words
from hearsay_server.surveys import revealing
from ldp import RAPPOR, DBitFlip, Mechanism, PrefixHashing, SetBits, SetSelection, Tally
from ldp.core.mechanism import Codes, FrequencyOracle
from ldp.mechanisms import PolicyMeanTable, PolicySubsets, PolicyTable, PolicyUnary

_NAMED = 8
"""Values that are named."""


def describe(domain: Domain | Grid, mechanism: Mechanism, codes: bytes) -> str:
    """Return one encoded code in hex, with what it says by itself, in words.

    Of a code that supports some values: these; where a policy lets it reveal one, this one alone,
    and of a policy's subset the values for which it is the likeliest. Of a number: what it counts
    as. Of a table: the values for which the code is the most likely, or, where it keeps a policy
    and the code is impossible for all others, that it reveals them. Of others: the values to whose
    estimates the code adds most.
    """
    raw = codes.hex(" ") if len(codes) <= 8 else f"{codes[:8].hex(' ')} ..."
    code = mechanism.decode(codes, 1)
    if isinstance(domain, Strings):
        return f"{raw}  {_of_words(mechanism, code)}"
    tally = mechanism.tally(code)
    if isinstance(domain, Numeric):
        share = (float(mechanism.debias(tally)[0]) + 1) / 2
        said = f"counts as {domain.low + share * (domain.high - domain.low):.4g}"
        if isinstance(mechanism, PolicyMeanTable) and domain.sensitive:
            (place,) = np.flatnonzero(tally.counts)
            if revealing.telling(mechanism)[:, place].any():
                said += f", tells: not in {' or '.join(map(in_words, domain.sensitive))}"
        return f"{raw}  {said}"
    if isinstance(domain, SetOf | Ratings):
        return f"{raw}  {_of_items(domain, mechanism, tally)}"
    labels = domain.values if isinstance(domain, Categorical) else domain.labels
    return f"{raw}  {_of_values(labels, mechanism, tally)}"


def _of_values(labels: Sequence[str], mechanism: Mechanism, tally: Tally) -> str:
    """Return in words what a report of one of some values says."""
    if isinstance(mechanism, DBitFlip):
        no, yes = tally.counts.reshape(-1, 2).T > 0
        said = ((answer, _listed(labels, which)) for answer, which in (("yes", yes), ("no", no)))
        return f"says: {'; '.join(f'{answer} to {which}' for answer, which in said if which)}"
    if isinstance(mechanism, PolicyUnary | PolicySubsets):
        which, sure = revealing.named(mechanism, tally)
        return f"{'reveals' if sure else 'says'}: {_listed(labels, which) or 'none'}"
    if isinstance(mechanism, FrequencyOracle):
        return f"says: {_listed(labels, mechanism.supports(tally) > 0) or 'none'}"
    if (matrix := mechanism.matrix()) is not None:
        column = matrix @ tally.counts
        most = _largest(column)
        certain = isinstance(mechanism, PolicyTable) and not column[~most].any()
        return f"{'reveals' if certain else 'most likely for'}: {_listed(labels, most)}"
    weights = mechanism.debias(tally)  # how much this report adds to each value's estimate
    return f"counts most for: {_listed(labels, _largest(weights))}"


def _largest(numbers: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Tell which numbers are the largest, but for rounding."""
    largest: NDArray[np.bool_] = numbers >= numbers.max() - 1e-9 * np.abs(numbers).max()
    return largest


def _listed(labels: Sequence[str], chosen: NDArray[np.bool_]) -> str:
    """Return the chosen labels in words; of many the first and how many more there are."""
    places = np.flatnonzero(chosen)
    named = [labels[place] for place in places[:_NAMED]]
    if more := places.size - len(named):
        named.append(f"{more:,} more")
    return " or ".join(named)


def _of_words(mechanism: Mechanism, code: Codes) -> str:
    """Return in words what a report of a word says."""
    if isinstance(mechanism, RAPPOR):
        bits = np.flatnonzero(mechanism.tally(code).counts)
        group = f", by the hash functions of group {bits[0] // mechanism.bits}" if bits.size else ""
        return f"says: {bits.size} of {mechanism.bits} bits are set{group}"
    assert isinstance(mechanism, PrefixHashing)  # as the plan was checked
    letters = mechanism.lengths[code["group"][0]]
    return (
        f"says: one in {mechanism.buckets} of all beginnings of {letters} letters, by the hash "
        f"function {code['seed'][0]}"
    )


def _of_items(domain: SetOf | Ratings, mechanism: Mechanism, tally: Tally) -> str:
    """Return in words what a report of a set or of ratings says."""
    if isinstance(mechanism, SetBits):
        (code,) = np.flatnonzero(tally.counts)
        return f"says: {domain.labels[code // 2]}, {'yes' if code % 2 else 'no'}"
    assert isinstance(mechanism, SetSelection)  # as the plan was checked
    said = [_member(domain, mechanism, member) for member in np.flatnonzero(tally.counts).tolist()]
    return f"says: {' or '.join(said)}"


def _member(domain: SetOf | Ratings, mechanism: SetSelection, member: int) -> str:
    if member >= mechanism.items:
        most = mechanism.most - 1 - (member - mechanism.items)
        return f"{most} or fewer"
    if isinstance(domain, Ratings):
        return f"{domain.keys[member // 2]} {'low' if member % 2 else 'high'}"
    return domain.values[member]
