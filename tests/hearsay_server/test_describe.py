"""`describe`: what a randomised code says, in words, for every mechanism."""

import re

import pytest
from described import DESCRIBED, asked

from hearsay.plans.kinds import Categorical, Strings
from hearsay_server.surveys.describe import describe
from ldp import RAPPOR, UnaryEncoding
from ldp.mechanisms import IN_PLANS
from ldp.testing import SeededCoins


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


def test_of_a_filter_the_bits_and_the_group_are_those_of_the_code() -> None:
    filters = RAPPOR.calibrate(1.0, 2.0, bits=16, hashes=2, cohorts=64)
    code = (49).to_bytes(2, "little") + bytes([0b10110, 0b1])
    words = describe(Strings("ab", 3, ("a", "b")), filters, code).partition("  ")[2]
    assert words == "says: 4 of 16 bits are set, by the hash functions of group 49"
