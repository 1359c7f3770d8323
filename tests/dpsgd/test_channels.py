"""Reports as likelihoods, indicators and numbers, against exactly enumerated channels."""

import numpy as np
import pytest
from reported import CATEGORICAL, every_code

from dpsgd.reports.channels import Cohort, Reports, indicators, likelihoods, numbers
from ldp import (
    KRR,
    CountMeanSketch,
    InvalidInput,
    LaplaceMechanism,
    Mechanism,
    OneBitMean,
    PiecewiseMechanism,
    SummingHistogram,
)
from ldp.testing import SeededCoins


@pytest.mark.parametrize("name", CATEGORICAL)
def test_likelihoods_are_the_columns_of_the_channel(name: str) -> None:
    mechanism = CATEGORICAL[name]
    columns = np.array(mechanism.channel().rows, dtype=float).T
    expected = columns / columns.max(axis=1, keepdims=True)
    assert likelihoods(mechanism, every_code(mechanism)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", CATEGORICAL)
def test_indicators_are_one_for_the_truth_on_average_and_zero_for_others(name: str) -> None:
    mechanism = CATEGORICAL[name]
    channel = np.array(mechanism.channel().rows, dtype=float)
    mean = channel @ indicators(mechanism, every_code(mechanism))
    assert mean == pytest.approx(np.eye(mechanism.k), abs=1e-9)


@pytest.mark.parametrize(
    "mechanism", [OneBitMean(1.0), PiecewiseMechanism(1.0, grid=64)], ids=["1", "pm"]
)
def test_numbers_are_unbiased_on_the_whole_grid(mechanism: Mechanism) -> None:
    channel = np.array(mechanism.channel().rows, dtype=float)
    plugged = numbers(mechanism, np.arange(channel.shape[1], dtype=mechanism.code_dtype))
    assert channel @ plugged == pytest.approx(np.linspace(-1, 1, len(channel)), abs=1e-9)


def test_every_level_has_its_own_channel(coins: SeededCoins) -> None:
    strict, open_ = KRR(3, 0.5), KRR(3, 4.0)
    codes = np.array([0, 1, 2, 2], dtype=np.uint8)
    reports = Reports.by_level([strict, open_], np.array([0, 1, 1, 0]), codes)
    for row, mechanism in enumerate([strict, open_, open_, strict]):
        alone = likelihoods(mechanism, codes[row : row + 1])[0]
        assert reports.likelihoods()[row] == pytest.approx(alone)
        alone = indicators(mechanism, codes[row : row + 1])[0]
        assert reports.indicators()[row] == pytest.approx(alone)


def test_a_row_without_a_report_says_nothing() -> None:
    codes = np.array([0, 1], dtype=np.uint8)
    reports = Reports.by_level([KRR(3, 1.0)], np.array([-1, 0]), codes)
    assert reports.likelihoods()[0].tolist() == [1, 1, 1]
    assert reports.indicators()[0].tolist() == [0, 0, 0]
    one_bit = OneBitMean(1.0)
    assert Reports(2, (Cohort(one_bit, np.array([1]), codes[1:]),)).numbers()[0] == 0


@pytest.mark.parametrize("mechanism", [SummingHistogram(4, 1.0), CountMeanSketch(4, 1.0)])
def test_reports_that_cannot_be_read_by_category_are_refused(
    mechanism: Mechanism, coins: SeededCoins
) -> None:
    codes = mechanism.randomize_many([0, 1], coins)
    for function in (likelihoods, indicators):
        with pytest.raises(InvalidInput, match="is not known here; collect what is to be learned"):
            function(mechanism, codes)


def test_numbers_and_categories_are_not_mixed_up() -> None:
    with pytest.raises(InvalidInput, match="krr does not report numbers"):
        numbers(KRR(3, 1.0), np.array([0], dtype=np.uint8))
    with pytest.raises(InvalidInput, match="laplace does not report categories"):
        likelihoods(LaplaceMechanism(1.0), np.array([0], dtype=np.uint16))


def test_codes_that_cannot_be_are_refused() -> None:
    with pytest.raises(InvalidInput, match="krr"):
        likelihoods(KRR(3, 1.0), np.array([3], dtype=np.uint8))
    with pytest.raises(InvalidInput, match="krr"):
        indicators(KRR(3, 1.0), np.array([3], dtype=np.uint8))


@pytest.mark.parametrize(
    ("n", "cohorts", "reason"),
    [
        (1, [], "need at least one cohort"),
        (1, [(KRR(3, 1.0), [0, 1], [0])], "as many rows as codes, got 2 and 1"),
        (1, [(KRR(3, 1.0), [1], [0])], r"rows lie in 0\.\.0, got 1\.\.1"),
        (2, [(KRR(3, 1.0), [0], [0]), (KRR(3, 2.0), [0], [0])], "two reports"),
        (2, [(KRR(3, 1.0), [0], [0]), (KRR(4, 2.0), [1], [0])], "different numbers of categories"),
    ],
    ids=["none", "codes", "outside", "twice", "categories"],
)
def test_a_table_that_cannot_be_is_refused(n, cohorts, reason) -> None:
    built = tuple(Cohort(m, np.array(r), np.array(c, dtype=np.uint8)) for m, r, c in cohorts)
    with pytest.raises(InvalidInput, match=reason):
        Reports(n, built)
