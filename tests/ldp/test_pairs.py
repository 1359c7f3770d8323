"""Sums over records of what their two reports say together."""

from typing import Any

import numpy as np
import pytest
from every_mechanism import SAMPLED

from ldp import (
    KRR,
    RAPPOR,
    CountMeanSketch,
    HadamardCountMeanSketch,
    InvalidInput,
    LocalHashing,
    PiecewiseMechanism,
    PrefixHashing,
    SubsetSelection,
    UnaryEncoding,
)
from ldp.core.mechanism import Categorical, Mechanism
from ldp.estimating.pairs import (
    MAX_VALUES,
    PairTally,
    count_pairs,
    product_means,
    reading,
    second_moments,
)
from ldp.mechanisms.numbers.mean import MeanMechanism
from ldp.mechanisms.sets.base import SetMechanism
from ldp.testing import SeededCoins


def _inputs(mechanism: Mechanism, n: int) -> Any:
    if isinstance(mechanism, SetMechanism):
        return [(0,)] * n
    if isinstance(mechanism, PrefixHashing):
        return [1, 2] * (n // 2)
    if isinstance(mechanism, RAPPOR):
        return np.array([f"{i}.example" for i in range(n)])
    if isinstance(mechanism, Categorical):
        return np.arange(n) % mechanism.k
    return np.linspace(-1, 1, n)


@pytest.mark.parametrize("name", SAMPLED)
def test_counts_of_each_code_by_itself_are_those_of_its_own_tally(name: str) -> None:
    mechanism = SAMPLED[name]
    codes = mechanism.randomize_many(_inputs(mechanism, 8), SeededCoins(1))
    each = mechanism.each_counted(codes)
    assert each.shape == (8, mechanism.tally_size)
    for place in range(8):
        assert each[place].tolist() == mechanism.tally(codes[place : place + 1]).counts.tolist()
    assert mechanism.each_counted(codes[:0]).shape == (0, mechanism.tally_size)


@pytest.mark.parametrize("name", SAMPLED)
def test_one_report_estimates_its_features_without_bias(name: str) -> None:
    mechanism = SAMPLED[name]
    if not isinstance(mechanism, Categorical | MeanMechanism):
        with pytest.raises(InvalidInput, match="tell of neither values nor a mean"):
            reading(mechanism)
        return
    if isinstance(mechanism, CountMeanSketch | HadamardCountMeanSketch):
        with pytest.raises(InvalidInput, match="unbiased over the choice of its hash functions"):
            reading(mechanism)
        return
    if isinstance(mechanism, Categorical) and mechanism.k > 20:
        return
    given = range(mechanism.k) if isinstance(mechanism, Categorical) else (-1.0, -0.3, 1.0)
    for place, value in enumerate(given):
        codes = mechanism.randomize_many(np.full(1000, value), SeededCoins(place))
        seen = reading(mechanism).of(mechanism.each_counted(codes).astype(float))
        if isinstance(mechanism, Categorical):
            truth = np.eye(mechanism.k)[place]
            second = second_moments(mechanism)[place]
        else:
            truth, second = np.array([1, value]), seen.T @ seen / len(seen)
        noise = np.sqrt(np.maximum(np.diag(second) - truth**2, 0) / len(seen))
        assert (np.abs(seen.mean(axis=0) - truth) <= 4.5 * noise + 1e-9).all()


@pytest.mark.parametrize(
    "mechanism", [KRR(4, 1.0), UnaryEncoding(4, 1.0), SubsetSelection(5, 0.5)], ids=lambda m: m.name
)
def test_second_moments_are_those_of_the_enumerated_channel(mechanism: Categorical) -> None:
    channel = mechanism.channel()
    supports = np.zeros((len(channel.outputs), mechanism.k))
    for place, output in enumerate(channel.outputs):
        if isinstance(mechanism, KRR):
            supports[place, output] = 1
        elif isinstance(mechanism, UnaryEncoding):
            supports[place] = [output >> v & 1 for v in range(mechanism.k)]
        else:
            supports[place, list(output)] = 1
    estimates = reading(mechanism).of(supports)
    rows = np.array(channel.rows, dtype=float)
    assert rows @ estimates == pytest.approx(np.eye(mechanism.k), abs=1e-12)
    exact = np.einsum("xc,ca,cb->xab", rows, estimates, estimates)
    assert second_moments(mechanism) == pytest.approx(exact, abs=1e-9)


@pytest.mark.parametrize(
    "pair",
    [
        (KRR(3, 1.0), KRR(4, 2.0)),
        (KRR(3, 1.0), UnaryEncoding(4, 1.0)),
        (SubsetSelection(6, 1.0), LocalHashing(4, 1.0, buckets=3)),
        (PiecewiseMechanism(1.0, 4), UnaryEncoding(3, 1.0)),
    ],
    ids=lambda pair: f"{pair[0].name}, {pair[1].name}",
)
def test_means_of_products_are_those_of_a_loop_over_the_records(
    pair: tuple[Mechanism, Mechanism],
) -> None:
    first, second = pair
    codes = [m.randomize_many(_inputs(m, 90), SeededCoins(3)) for m in pair]
    whole = count_pairs(first, codes[0], second, codes[1])
    parts = [
        count_pairs(first, codes[0][s], second, codes[1][s]) for s in (slice(40), slice(40, 90))
    ]
    summed = parts[0] + parts[1]
    assert summed.products.tolist() == whole.products.tolist()
    assert (summed.first, summed.second) == (whole.first, whole.second)
    total = 0.0
    for one, other in zip(*codes, strict=True):
        u, v = (
            reading(m).of(m.each_counted(code[np.newaxis]).astype(float))[0]
            for m, code in ((first, one), (second, other))
        )
        total = total + np.outer(u, v)
    assert product_means(first, second, whole) == pytest.approx(total / 90)


def test_a_pair_tally_must_be_of_records_with_both_reports() -> None:
    m = KRR(3, 1.0)
    with pytest.raises(InvalidInput, match="each record has two codes, got 2 of the first and 3"):
        count_pairs(m, np.zeros(2, "u1"), m, np.zeros(3, "u1"))
    tally = m.tally(np.zeros(2, "u1"))
    with pytest.raises(InvalidInput, match="records with both reports, got 2 of the first and 4"):
        PairTally(tally, tally + tally, np.zeros((3, 3), dtype=np.int64))
    with pytest.raises(InvalidInput, match=r"products have the shape \(3, 3\), got \(3, 4\)"):
        PairTally(tally, tally, np.zeros((3, 4), dtype=np.int64))


def test_too_many_counts_or_values_are_refused() -> None:
    large = KRR(5000, 1.0)
    none = np.zeros(0, "u2")
    with pytest.raises(InvalidInput, match="5000 x 5000 counts together, more than 4194304"):
        count_pairs(large, none, large, none)
    with pytest.raises(InvalidInput, match=f"has {MAX_VALUES} values of each at most, got 129"):
        second_moments(KRR(129, 1.0))
    with pytest.raises(InvalidInput, match="5000 counts for 5000 values, too many"):
        reading(large)
