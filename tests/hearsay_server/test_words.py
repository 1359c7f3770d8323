"""Words, from a device's answers to what an analyst is told."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from collected import DAYS, batch, register
from serving import submit

from hearsay import Analyst
from ldp import RAPPOR, PrefixHashing

ALPHABET = "abcdefghijklmnopqrstuvwxyz'"
TOML = f"""
name = "terms"
title = "What do you search for?"
period = "P1D"
[levels]
strict = 6.0
open = 9.0
[[attributes]]
name = "word"
title = "Which word did you search for first?"
[attributes.strings]
alphabet = "{ALPHABET}"
longest = 12
[[attributes]]
name = "known"
[attributes.strings]
alphabet = "{ALPHABET}"
longest = 8
candidates = ["you", "the", "it's"]
[[attributes]]
name = "kept"
mechanism = "rappor"
memo = 2
[attributes.strings]
alphabet = "{ALPHABET}"
longest = 8
candidates = ["you", "the", "it's"]
"""
ROWS = 3000
WORDS = ["you", "the", "it's", "something"]
SHARES = [0.4, 0.3, 0.2, 0.1]


def people(plan: Any, seed: int) -> dict[str, Any]:
    chosen = np.random.default_rng(seed).choice(4, ROWS, p=SHARES)
    spelled = plan.attributes["word"].domain.spelling.numbers(WORDS)
    short = plan.attributes["known"].domain.spelling.numbers(["you", "the", "it's", "other"])
    words = np.array(["you", "the", "it's", "other"])
    return {"word": spelled[chosen], "known": short[chosen], "kept": words[chosen]}


class Collected:
    def __init__(self, address: str, analyst: Analyst) -> None:
        self.address, self.analyst = address, analyst
        _, self.plan = register(address, TOML)
        cohorts = [(level, day) for level in self.plan.levels for day in DAYS[:2]]
        submit(
            address,
            *(batch(self.plan, level, day, people(self.plan, i), 10 * i)
              for i, (level, day) in enumerate(cohorts)),
        )  # fmt: skip


@pytest.fixture(scope="module")
def analyst(address: str) -> Iterator[Analyst]:
    with Analyst(address) as found:
        yield found


@pytest.fixture(scope="module")
def collected(address: str, analyst: Analyst) -> Collected:
    return Collected(address, analyst)


def near(table: Any, truth: dict[str, float]) -> None:
    for label, share in truth.items():
        row = table.loc[label]
        assert abs(row["estimate"] - share) < 4 * row["standard_error"], label
        assert row["low"] <= row["estimate"] <= row["high"]


def test_the_plan_has_a_mechanism_for_words(collected: Collected) -> None:
    for level in collected.plan.levels.values():
        word, known, kept = (level.mechanisms[name] for name in ("word", "known", "kept"))
        assert isinstance(word, PrefixHashing)
        assert word.lengths == (4, 8, 12)
        assert isinstance(known, PrefixHashing)
        assert known.lengths == (8, 8)
        assert isinstance(kept, RAPPOR)


def test_shares_of_words_by_rappor(collected: Collected) -> None:
    table = collected.analyst.frequencies_of("terms", "kept")
    near(table, {"you": 0.4, "the": 0.3, "it's": 0.2, "(all others)": 0.1})
    assert table.attrs["repeats"] == pytest.approx(2)
