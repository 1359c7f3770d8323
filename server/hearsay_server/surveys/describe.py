"""A randomised code, in words."""

import numpy as np

from hearsay.plans.domains import Categorical, Domain, Numeric
from ldp import Mechanism
from ldp.core.mechanism import FrequencyOracle
from ldp.mechanisms import PolicyTable


def describe(domain: Domain, mechanism: Mechanism, codes: bytes) -> str:
    """Return one encoded code in hex, with the values that it counts for by itself.

    Of a table that keeps a policy: with the values for which the code is the most likely, or, where
    it is impossible for all others, that it reveals them.
    """
    raw = codes.hex(" ") if len(codes) <= 8 else f"{codes[:8].hex(' ')} ..."
    tally = mechanism.tally(mechanism.decode(codes, 1))
    if isinstance(domain, Numeric):
        share = (float(mechanism.debias(tally)[0]) + 1) / 2
        return f"{raw}  counts as {domain.low + share * (domain.high - domain.low):.1f}"
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
