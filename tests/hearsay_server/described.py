"""Every mechanism of a plan, with a question and an answer that fit it."""

from itertools import islice
from typing import Any

from every_mechanism import WIRED

from hearsay.plans.kinds import Categorical, Domain, Numeric, SetOf, Strings
from ldp import RAPPOR, Mechanism, PrefixHashing
from ldp.mechanisms import SetMechanism
from ldp.mechanisms.numbers.mean import MeanMechanism

DESCRIBED = {name: each for name, each in WIRED.items() if each.guarantee != "approximate"}


def asked(mechanism: Mechanism) -> tuple[Domain, Any]:
    """A domain that fits a mechanism, and an answer as the mechanism takes it."""
    if isinstance(mechanism, MeanMechanism):
        return Numeric(0, 10, clamp=False), 0.3
    if isinstance(mechanism, SetMechanism):
        values = tuple(f"value {i}" for i in range(mechanism.items))
        return SetOf(values, 2, clamp=False), next(islice(mechanism.sets(), 1, None))
    if isinstance(mechanism, PrefixHashing | RAPPOR):
        words = iter(mechanism.words()) if isinstance(mechanism, PrefixHashing) else iter(["ab"])
        return Strings("ab", 3, ("a", "b")), next(words)
    return Categorical(tuple(f"value {i}" for i in range(mechanism.parameters))), 1
