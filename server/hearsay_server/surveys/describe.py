"""A randomised code, in words."""

import numpy as np

from hearsay.plans.domains import Categorical, Domain, Grid, Numeric, Ratings, SetOf, Strings
from ldp import Mechanism, PrefixHashing, SetBits, SetSelection, Tally
from ldp.core.mechanism import Codes, FrequencyOracle
from ldp.mechanisms import PolicyTable


def describe(domain: Domain | Grid, mechanism: Mechanism, codes: bytes) -> str:
    """Return one encoded code in hex, with the values that it counts for by itself.

    Of a table that keeps a policy: with the values for which the code is the most likely, or, where
    it is impossible for all others, that it reveals them.
    """
    raw = codes.hex(" ") if len(codes) <= 8 else f"{codes[:8].hex(' ')} ..."
    code = mechanism.decode(codes, 1)
    if isinstance(domain, Strings):
        return f"{raw}  {_of_words(mechanism, code)}"
    tally = mechanism.tally(code)
    if isinstance(domain, Numeric):
        share = (float(mechanism.debias(tally)[0]) + 1) / 2
        return f"{raw}  counts as {domain.low + share * (domain.high - domain.low):.1f}"
    if isinstance(domain, SetOf | Ratings):
        return f"{raw}  {_of_items(domain, mechanism, tally)}"
    if isinstance(mechanism, PolicyTable) and isinstance(domain, Categorical):
        column = mechanism.matrix() @ tally.counts
        most = column >= column.max() * (1 - 1e-9)
        said = " or ".join(domain.values[v] for v in np.flatnonzero(most))
        certain = not column[~most].any()
        return f"{raw}  {'reveals' if certain else 'most likely for'}: {said}"
    if not isinstance(domain, Categorical) or not isinstance(mechanism, FrequencyOracle):
        return f"{raw}  ({mechanism.name})"
    supported = mechanism.supports(tally)
    said = " or ".join(v for v, count in zip(domain.values, supported, strict=True) if count)
    return f"{raw}  says: {said or 'none'}"


def _of_words(mechanism: Mechanism, code: Codes) -> str:
    """Return in words what a report of a word says."""
    if not isinstance(mechanism, PrefixHashing):
        return f"({mechanism.name})"
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
