"""The contraction theorem, by brute force on everything that is small."""

import functools
import itertools
import math
from collections.abc import Callable, Iterable

import numpy as np
import pytest
from reported import CATEGORICAL

from dpsgd.accounting import gaussian_epsilon
from dpsgd.reports.contraction import (
    contracted_epsilon,
    hockey_stick,
    local_epsilon,
    replacement_epsilon,
)
from ldp import (
    KRR,
    ChannelTable,
    GaussianMechanism,
    InvalidInput,
    KRRChain,
    LaplaceMechanism,
    LocalHashing,
    Mechanism,
    OneBitMean,
    PiecewiseMechanism,
    Policy,
)
from ldp.planning.design import design

ONE_SIDED = design(Policy.one_sided(3, [0], 1.0)).mechanism
"""A report may reveal the first of three values."""

KNOWN = CATEGORICAL | {
    "policy": ONE_SIDED,
    "one bit": OneBitMean(1.0),
    "piecewise": PiecewiseMechanism(1.0, grid=16),
    "laplace": LaplaceMechanism(1.0, grid=16),
    "table": ChannelTable.from_rows(
        1.7, [[0.5, 0.25, 0.15, 0.1], [0.1, 0.25, 0.15, 0.5], [0.3, 0.3, 0.2, 0.2]]
    ),
}
RATIOS = [1.0, 1.1, 1.5, 2.0, 2.7, 3.5]


def enumerated(rows: np.ndarray, g: float) -> float:
    """H(g) by its definition."""
    pairs = itertools.permutations(rows, 2)
    return max(float(np.maximum(a - g * b, 0).sum()) for a, b in pairs)


@pytest.mark.parametrize("name", KNOWN)
def test_a_small_channels_divergence_is_exact(name: str) -> None:
    mechanism: Mechanism = KNOWN[name]
    rows = np.array(mechanism.channel().rows, dtype=float)
    for g in RATIOS:
        assert hockey_stick([mechanism], g) == pytest.approx(enumerated(rows, g), abs=1e-12)


@pytest.mark.parametrize(
    "names", [("krr", "hrr"), ("sue", "krr"), ("krr", "krr", "table"), ("policy", "krr")]
)
def test_a_record_of_several_reports_is_bounded_from_above(names: tuple[str, ...]) -> None:
    record = [KNOWN[name] for name in names]
    rows = np.ones((1, 1))
    for mechanism in record:
        rows = np.kron(rows, np.array(mechanism.channel().rows, dtype=float))
    for g in RATIOS:
        assert enumerated(rows, g) <= hockey_stick(record, g) + 1e-12


def test_a_channel_too_large_to_enumerate_is_bounded_by_its_epsilon() -> None:
    large = PiecewiseMechanism(1.0, grid=2048)
    small = PiecewiseMechanism(1.0, grid=16)
    for g in RATIOS:
        bound = hockey_stick([large], g)
        assert bound == pytest.approx(max(0, (math.e - g) / (math.e + 1)), abs=1e-9)
        assert bound >= hockey_stick([small], g) - 0.01
    assert 0 < hockey_stick([LocalHashing.optimised(1000, 1.0)], 1.0) < bound_of_any(1.0)


def bound_of_any(epsilon: float) -> float:
    return math.tanh(epsilon / 2)


def random_training(source: np.random.Generator, k: int, outputs: int) -> np.ndarray:
    """Pr[output | report of one, report of the other], shape (k, k, outputs)."""
    logits = source.normal(scale=source.uniform(0.1, 3), size=(k, k, outputs))
    chances = np.exp(logits)
    if source.random() < 0.3:
        chances *= source.random(chances.shape) < 0.7  # outputs that give a report away
        chances[..., 0] += 1e-3
    found: np.ndarray = chances / chances.sum(axis=-1, keepdims=True)
    return found


def delta_of(pairs, epsilon: float) -> float:
    """The least delta for (epsilon, delta)-DP, over pairs of output distributions."""
    return max(float(np.maximum(a - math.exp(epsilon) * b, 0).sum()) for a, b in pairs)


def curve_of(pairs: Iterable[tuple[np.ndarray, np.ndarray]]) -> Callable[[float], float]:
    """The epsilon at a delta, on a fine grid, over pairs of output distributions."""
    first, second = map(np.array, zip(*pairs, strict=True))
    grid = np.linspace(0, 12, 200)
    deltas = [np.maximum(first - math.exp(e) * second, 0).sum(axis=1).max() for e in grid]
    return lambda delta: next((e for e, d in zip(grid, deltas, strict=True) if d <= delta), 50.0)


@pytest.mark.parametrize("name", ["krr", "subset", "hadamard", "hrr", "table", "ordered"])
def test_the_theorem_holds_for_random_trainings_on_two_records(name: str) -> None:
    """Two records, one report each; the other's report is randomised too."""
    mechanism = KNOWN[name]
    channel = np.array(mechanism.channel().rows, dtype=float)
    inputs, k = channel.shape
    source = np.random.default_rng(2)
    for _ in range(8):
        training = random_training(source, k, 3)
        spent = curve_of(
            [
                (training[a, y], training[b, y])
                for y in range(k)
                for a, b in itertools.permutations(range(k), 2)
            ]
        )
        # The output's distribution for true answers x of the one and z of the other.
        whole = np.einsum("xa,zb,abo->xzo", channel, channel, training)
        pairs = [
            (whole[a, z], whole[b, z])
            for z in range(inputs)
            for a, b in itertools.permutations(range(inputs), 2)
        ]
        delta = float(np.exp(source.uniform(-9, -1)))
        promised = contracted_epsilon([mechanism], spent, delta)
        assert delta_of(pairs, promised) <= delta + 1e-12


def test_the_bound_takes_the_trainings_epsilon_at_the_delta_that_is_left_to_it() -> None:
    """That is delta over H(g), where total variation would leave less."""
    record, delta = [KRR(10, 1.0)], 1e-5
    spent = functools.partial(gaussian_epsilon, 1.0)
    found = contracted_epsilon(record, spent, delta)
    share = hockey_stick(record, math.exp(found))
    assert math.log1p(math.expm1(spent(delta / share)) * share) == pytest.approx(found, rel=1e-6)
    by_variation = spent(delta / hockey_stick(record, 1.0))
    assert found < 0.99 * contracted_epsilon(record, lambda _: by_variation, delta)


def test_replacing_is_bounded_for_random_trainings_with_and_without_a_record() -> None:
    """One output distribution without the record, and one with each of three values of it."""
    source = np.random.default_rng(3)
    for _ in range(40):
        without, *values = source.dirichlet(np.full(5, source.uniform(0.3, 3)), 4)
        spent = curve_of([pair for v in values for pair in ((without, v), (v, without))])
        delta = float(np.exp(source.uniform(-6, -1)))
        promised = replacement_epsilon(spent, delta)
        if promised < 50:
            assert delta_of(itertools.permutations(values, 2), promised) <= delta + 1e-12


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_without_delta_the_bound_is_attained(name: str, epsilon: float) -> None:
    """By a training that says whether a report lies in the set that tells two answers apart."""
    mechanism = KNOWN[name]
    rows = np.array(mechanism.channel().rows, dtype=float)
    promised = contracted_epsilon([mechanism], lambda _: epsilon, 1e-9)
    odds = math.exp(epsilon)
    worst = 0.0
    for a, b in itertools.permutations(rows, 2):
        inside = a > math.exp(promised) * b * (1 - 1e-9)
        yes = [(1 + (odds - 1) * row[inside].sum()) / (odds + 1) for row in (a, b)]
        worst = max(worst, math.log(yes[0] / yes[1]))
    assert worst == pytest.approx(promised, rel=1e-6)


def test_the_binary_example() -> None:
    """epsilon 1 of the report and 1 of the training: 0.434, where total variation gives 0.585."""
    found = contracted_epsilon([KRR(2, 1.0)], lambda _: 1.0, 1e-9)
    assert found == pytest.approx(0.434, abs=5e-4)
    variation = hockey_stick([KRR(2, 1.0)], 1.0)
    assert variation == pytest.approx((math.e - 1) / (math.e + 1))
    assert math.log1p(variation * math.expm1(1.0)) == pytest.approx(0.585, abs=1e-3)


@pytest.mark.parametrize("name", KNOWN)
def test_the_bound_is_at_most_each_of_what_it_joins(name: str) -> None:
    record = [KNOWN[name]]
    local, variation = local_epsilon(record), hockey_stick(record, 1.0)
    for epsilon in (0.0, 0.01, 0.5, 1.0, 3.0, 20.0, 1e4):
        found = contracted_epsilon(record, lambda _, epsilon=epsilon: epsilon, 1e-9)
        assert found <= min(local, epsilon) * (1 + 1e-9)
        if epsilon < 700:
            assert found <= math.log1p(variation * math.expm1(epsilon)) * (1 + 1e-8)
    assert contracted_epsilon(record, lambda _: math.inf, 1e-9) == pytest.approx(local, rel=1e-9)
    assert contracted_epsilon(record, lambda _: 0.0, 1e-9) == 0


@pytest.mark.parametrize("noise", [0.7, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-6])
def test_replacing_costs_more_than_adding_and_no_more_than_is_said(noise, delta) -> None:
    """A noisy sum: adding a record moves it by one, replacing it by two."""
    spent, replaced = gaussian_epsilon(noise, delta), gaussian_epsilon(noise / 2, delta)
    bound = replacement_epsilon(lambda delta: gaussian_epsilon(noise, delta), delta)
    assert spent < replaced <= bound
    # What an add-or-remove epsilon must not be used for: the truth lies above it.
    assert contracted_epsilon([KRR(2, 8.0)], lambda _: spent, delta) < replaced


def test_a_fixed_pair_is_no_bound_at_its_own_delta() -> None:
    assert replacement_epsilon(lambda delta: 1.0 if delta >= 1e-5 else math.inf, 1e-5) == math.inf
    assert replacement_epsilon(lambda delta: 1.0 if delta >= 1e-5 else math.inf, 6e-5) == 2.0


def test_where_a_report_may_reveal_an_answer_the_training_still_protects_it() -> None:
    record = [ONE_SIDED, KRR(2, 1.0)]
    assert local_epsilon(record) == contracted_epsilon(record, lambda _: math.inf, 1e-9) == math.inf
    variation = enumerated(np.array(ONE_SIDED.channel().rows, dtype=float), 1.0)
    found = contracted_epsilon([ONE_SIDED], lambda _: 1.0, 1e-9)
    assert found == pytest.approx(math.log1p(variation * math.expm1(1.0)))
    assert 0 < found < 1


def test_what_keeps_no_epsilon_by_itself_is_refused() -> None:
    for mechanism in (GaussianMechanism.calibrated(1.0, 1e-6), KRRChain.calibrate(4, 1.0, 2.0)):
        with pytest.raises(InvalidInput, match="does not keep one epsilon in all it reports"):
            hockey_stick([mechanism], 1.0)
        with pytest.raises(InvalidInput, match="does not keep one epsilon in all it reports"):
            contracted_epsilon([mechanism], lambda _: 1.0, 1e-9)


@pytest.mark.parametrize(
    ("record", "g"), [([], 1.0), ([KRR(2, 1.0)], 0.5), ([KRR(2, 1.0)], math.nan)]
)
def test_bad_records_and_ratios_are_refused(record, g) -> None:
    with pytest.raises(InvalidInput, match="g must be >= 1 and a record has reports"):
        hockey_stick(record, g)


@pytest.mark.parametrize("delta", [0.0, 1.0, math.nan])
def test_a_bad_delta_is_refused(delta: float) -> None:
    with pytest.raises(InvalidInput, match="delta must lie strictly between"):
        replacement_epsilon(lambda _: 1.0, delta)
    with pytest.raises(InvalidInput, match="delta must lie strictly between"):
        contracted_epsilon([KRR(2, 1.0)], lambda _: 1.0, delta)
