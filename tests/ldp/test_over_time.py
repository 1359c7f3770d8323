"""Which mechanism costs least over many reports, at equal error."""

import numpy as np
import pytest

from ldp import InvalidInput
from ldp.core.exact import ONE
from ldp.mechanisms import KRR, SubsetSelection
from ldp.planning.composition import of_channels
from ldp.planning.over_time import at_equal_error, cost


def total_variance(mechanism: KRR | SubsetSelection) -> float:
    k = mechanism.k
    return float(np.sum(mechanism.variance(np.full(k, 1 / k), 1)))


def test_of_a_thousand_values_krr_is_best_for_a_year_and_subset_selection_for_a_day() -> None:
    once = SubsetSelection(1000, 1.0)
    found = {each.label: each for each in at_equal_error(1000, total_variance(once), 365)}
    krr, subset = found["krr"], found["subset"]
    assert krr == next(iter(found.values()))
    assert krr.mechanism.epsilon == pytest.approx(2.87, abs=0.01)
    assert krr.composed == pytest.approx(59.8, rel=0.01)
    assert subset.mechanism.epsilon == pytest.approx(1.0, abs=1e-4)
    assert subset.composed == pytest.approx(143.5, rel=1e-3)
    assert krr.total > subset.total
    day = at_equal_error(1000, total_variance(once), 1)
    assert day[0].label == "subset"
    assert {each.label for each in day} == set(found)


def test_compared_mechanisms_have_the_error_asked_for() -> None:
    limit = total_variance(KRR(6, 1.5))
    for each in at_equal_error(6, limit, 10):
        assert total_variance(each.mechanism) == pytest.approx(limit, rel=0.02)
        assert total_variance(each.mechanism) <= limit * (1 + 1e-9)


def test_reports_of_a_sample_cost_less_than_all_and_more_than_as_many() -> None:
    mechanism = KRR(10, 1.0)
    sampled = cost("krr", mechanism, 100, chance=ONE // 2).composed
    assert of_channels([(mechanism, 50)]) < sampled < of_channels([(mechanism, 100)])
    assert cost("krr", mechanism, 100).composed == of_channels([(mechanism, 100)])


@pytest.mark.parametrize("chance", [0, ONE + 1])
def test_a_chance_is_positive(chance: int) -> None:
    with pytest.raises(InvalidInput, match="a chance lies in 1"):
        cost("krr", KRR(2, 1.0), 1, chance=chance)


def test_a_variance_is_positive() -> None:
    with pytest.raises(InvalidInput, match="a variance must be > 0, got 0"):
        at_equal_error(4, 0.0, 1)
