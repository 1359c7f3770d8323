"""A randomised code, in words."""

from hearsay.plans.domains import Categorical, Domain, Numeric
from ldp import Mechanism
from ldp.core.mechanism import FrequencyOracle


def describe(domain: Domain, mechanism: Mechanism, codes: bytes) -> str:
    """Return one encoded code in hex, with the values that it counts for by itself."""
    raw = codes.hex(" ") if len(codes) <= 8 else f"{codes[:8].hex(' ')} ..."
    tally = mechanism.tally(mechanism.decode(codes, 1))
    if isinstance(domain, Numeric):
        share = (float(mechanism.debias(tally)[0]) + 1) / 2
        return f"{raw}  counts as {domain.low + share * (domain.high - domain.low):.1f}"
    if not isinstance(domain, Categorical) or not isinstance(mechanism, FrequencyOracle):
        return f"{raw}  ({mechanism.name})"
    supported = mechanism.supports(tally)
    said = [value for value, count in zip(domain.values, supported, strict=True) if count]
    return f"{raw}  says: {' or '.join(said) or 'none'}"
