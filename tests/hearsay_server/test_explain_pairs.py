"""What `survey explain` says of two attributes together."""

import numpy as np
import pytest

from hearsay_server.surveys import survey as surveys
from hearsay_server.surveys.explain import Explanation, explain
from ldp import KRR
from ldp.core.mechanism import Categorical
from ldp.estimating.independence import noncentrality

TOML = """
name = "pairs"
budget = "{budget}"
[levels]
low = 2.0
high = 4.0
[[attributes]]
name = "a"
mechanism = "krr"
[attributes.categorical]
values = ["x", "y", "z", "w"]
[[attributes]]
name = "b"
mechanism = "krr"
[attributes.categorical]
values = ["t", "u", "v", "w"]
[[attributes]]
name = "n"
[attributes.numeric]
low = 0
high = 1
"""


def explained(budget: str) -> Explanation:
    return explain(surveys.from_toml(TOML.format(budget=budget), "t"), "t", 10_000)


def test_pairs_of_a_split_record_have_an_error_and_are_worth_so_many_users() -> None:
    found = explained("split")
    assert [(pair.level, pair.first, pair.second) for pair in found.pairs] == [
        ("low", "a", "b"),
        ("high", "a", "b"),
    ]
    pair = found.pairs[0]
    mechanisms = [found.plan.levels["low"].mechanisms[name] for name in ("a", "b")]
    one, other = mechanisms
    assert isinstance(one, Categorical)
    assert isinstance(other, Categorical)
    e = np.exp(one.epsilon)
    noise = ((e + 3) / (e - 1)) ** 2
    assert 10_000 * 16 * pair.error**2 == pytest.approx((6 * noise + 9 * noise**2) / 16, rel=1e-3)
    rng = np.random.default_rng(1)
    away = rng.normal(size=(4, 4))
    away -= away.mean(axis=0)
    away -= away.mean(axis=1, keepdims=True)
    truth = 1 / 16 + 0.02 * away / np.abs(away).max()
    free = noncentrality(KRR(4, 30.0), KRR(4, 30.0), truth, 10_000)
    assert pair.as_many / 10_000 == pytest.approx(
        noncentrality(one, other, truth, 10_000) / free, rel=1e-3
    )


def test_sampled_records_tell_of_no_pair() -> None:
    assert not explained("sample").pairs
