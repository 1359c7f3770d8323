"""`describe`: what a randomised code says, in words, for every mechanism."""

import re
from itertools import islice
from typing import Any

import pytest
from every_mechanism import WIRED

from hearsay.plans.domains import Categorical, Domain, Numeric, SetOf, Strings
from hearsay_server.surveys.describe import describe
from ldp import RAPPOR, Mechanism, PrefixHashing, UnaryEncoding
from ldp.mechanisms import IN_PLANS, SetMechanism
from ldp.mechanisms.numbers.mean import MeanMechanism
from ldp.testing import SeededCoins

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


def test_every_mechanism_of_a_plan_is_described_here() -> None:
    assert {each.name for each in DESCRIBED.values()} == set(IN_PLANS)


@pytest.mark.parametrize("name", DESCRIBED)
def test_a_code_is_told_in_words(name: str) -> None:
    mechanism = DESCRIBED[name]
    domain, value = asked(mechanism)
    for seed in range(20):
        code = mechanism.encode(mechanism.randomize_many([value], SeededCoins(seed)))
        hexed, _, words = describe(domain, mechanism, code).partition("  ")
        assert re.fullmatch(r"([0-9a-f]{2} )*([0-9a-f]{2}|\.\.\.)", hexed)
        assert re.match(
            "(says|most likely for|reveals|counts most for): .|counts as -?[0-9.e+]+$", words
        )
        if isinstance(domain, Categorical) and words != "says: none":
            assert "value" in words


def test_many_values_are_counted() -> None:
    domain = Categorical(tuple(f"value {i}" for i in range(12)))
    words = describe(domain, UnaryEncoding.symmetric(12, 1.0), b"\xff\x0f")
    assert words.endswith("says: " + " or ".join(f"value {i}" for i in range(8)) + " or 4 more")
