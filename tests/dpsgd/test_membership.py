"""Membership inference: exact curves, a naive attack, models that remember and private ones."""

import math

import numpy as np
import pytest
import torch
from private import train
from scipy.stats import norm
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from dpsgd import PrivacyEngine
from dpsgd.auditing import lira, membership, most_found
from ldp import InvalidInput
from ldp.testing import SeededCoins


def test_the_curve_of_two_normals_is_the_known_one() -> None:
    generator = np.random.default_rng(1)
    found = membership(generator.normal(1, 1, 200_000), generator.normal(0, 1, 200_000))
    assert found.auc == pytest.approx(norm.cdf(math.sqrt(0.5)), abs=0.003)
    for point in found.points:
        truth = norm.cdf(1 + norm.ppf(point.false_positives))
        assert point.true_positives == pytest.approx(truth, abs=0.005)
        assert point.low < point.true_positives < point.high
        assert point.limit == 1


@pytest.mark.parametrize("others", [1000, 100])
def test_intervals_cover_the_curve_and_accuse_no_honest_mechanism(others: int) -> None:
    """Of two normals; and of randomised response, which reaches its limit, by scores of a coin."""
    generator, lie = np.random.default_rng(5), 1 / (1 + math.e)
    covered, accused = np.zeros(2), 0
    for _ in range(100):
        found = membership(generator.normal(1, 1, 1000), generator.normal(0, 1, others))
        truth = [norm.cdf(1 + norm.ppf(point.false_positives)) for point in found.points]
        covered += [p.low <= t <= p.high for p, t in zip(found.points, truth, strict=True)]
        said = [(generator.random(n) < p) for n, p in ((1000, 1 - lie), (others, lie))]
        found = membership(*(s + generator.random(s.size) / 9 for s in said), epsilon=1.0)
        accused += any(point.low > point.limit for point in found.points)
    assert covered.min() >= 94
    assert accused <= 5


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_randomized_response_reaches_the_limit_where_its_threshold_lies(epsilon: float) -> None:
    lie = 1 / (1 + math.exp(epsilon))
    assert most_found(epsilon, 0.0, lie) == pytest.approx(1 - lie)
    for rate in (0.01, 0.3, 0.8):  # between thresholds by a coin: a line through the corner
        line = rate * (1 - lie) / lie if rate < lie else 1 - (1 - rate) * lie / (1 - lie)
        assert most_found(epsilon, 0.0, rate) == pytest.approx(line)


def test_the_gaussian_mechanism_keeps_below_the_limit() -> None:
    for epsilon in (0.2, 1.0, 3.0):  # at delta of the mechanism with mean 1 and deviation 1
        delta = norm.cdf(0.5 - epsilon) - math.exp(epsilon) * norm.cdf(-0.5 - epsilon)
        rates = np.linspace(0.001, 0.999, 999)
        limits = np.array([most_found(epsilon, delta, rate) for rate in rates])
        slack = limits - norm.cdf(1 + norm.ppf(rates))
        assert -1e-12 < slack.min() < 1e-4


def test_no_more_others_are_accused_than_the_rate_says_though_scores_are_equal() -> None:
    found = membership([1.0] * 50 + [0.0] * 50, [1.0] * 11 + [0.0] * 89)
    assert [point.true_positives for point in found.points] == [0, 0]
    found = membership([1.0] * 50 + [0.0] * 50, [1.0] * 10 + [0.0] * 90)
    assert [point.true_positives for point in found.points] == [0, 0.5]
    assert found.auc == 0.5 + 0.5 * (0.5 - 0.1)


def naive_lira(p: np.ndarray, member: np.ndarray) -> np.ndarray:
    models, records = p.shape
    logit = np.log(p / (1 - p))
    scores = np.empty_like(p)
    for m in range(models):
        others = [i for i in range(models) if i != m]
        fits = []
        for wanted in (True, False):
            groups = [
                [logit[i, r] for i in others if member[i, r] == wanted] for r in range(records)
            ]
            means = [sum(g) / len(g) for g in groups]
            squares = [(x - mean) ** 2 for g, mean in zip(groups, means, strict=True) for x in g]
            variance = sum(squares) / sum(len(g) - 1 for g in groups)
            fits.append((means, math.sqrt(variance)))
        for r in range(records):
            density = [norm.logpdf(logit[m, r], means[r], s) for means, s in fits]
            scores[m, r] = density[0] - density[1]
    return scores


def test_lira_is_the_naive_attack() -> None:
    generator = np.random.default_rng(2)
    p = generator.uniform(0.01, 0.99, (7, 5))
    member = np.argsort(generator.random((7, 5)), axis=0) < 3
    np.testing.assert_allclose(lira(p, member), naive_lira(p, member), rtol=1e-9)


def test_a_models_own_value_does_not_enter_its_score() -> None:
    generator = np.random.default_rng(3)
    p = generator.uniform(0.2, 0.8, (8, 400))
    member = np.argsort(generator.random((8, 400)), axis=0) < 4
    scores = lira(p, member)  # confidences that have nothing to do with membership
    assert membership(scores[member], scores[~member]).auc == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize(
    ("p", "member", "message"),
    [
        ([[0.5] * 2] * 4, [[True] * 2] * 4, "in two models at least, and left out of two"),
        ([[0.5] * 2] * 4, [[True, False]] * 4, "in two models at least"),
        ([[1.5] * 2] * 4, [[True] * 2] * 4, "probabilities, from 0 to 1"),
        ([[math.nan] * 2] * 4, [[True] * 2] * 4, "probabilities"),
        ([0.5, 0.5], [True, False], r"\(models, records\)"),
        ([[0.5] * 2] * 4, [[1] * 2] * 4, "booleans"),
        ([[0.5]] * 4, [[True], [True], [False], [False]], "no variance"),
    ],
)
def test_lira_refuses_what_it_cannot_fit(p: object, member: object, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        lira(p, member)  # type: ignore[arg-type]


def test_membership_refuses_what_it_cannot_score() -> None:
    for inside in ([], [math.nan], [[1.0]]):
        with pytest.raises(InvalidInput, match="scores_in must be"):
            membership(inside, [1.0])
    with pytest.raises(InvalidInput, match="confidence"):
        membership([1.0], [0.0], confidence=1.0)
    with pytest.raises(InvalidInput, match="epsilon >= 0"):
        membership([1.0], [0.0], epsilon=-1.0)


RECORDS, MODELS = 200, 16


def confidences(noise: float | None) -> tuple[np.ndarray, np.ndarray, float]:
    """Train each model on half of some digits; return its confidence in all, and the epsilon."""
    digits = load_digits()
    x = torch.tensor(digits.data[:RECORDS] / 16, dtype=torch.float32)
    y = torch.tensor(digits.target[:RECORDS])
    member = np.argsort(np.random.default_rng(4).random((MODELS, RECORDS)), axis=0) < MODELS // 2
    found, epsilon = [], 0.0
    for i in range(MODELS):
        torch.manual_seed(i)
        model: nn.Module = nn.Sequential(nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 10))
        own = TensorDataset(x[member[i]], y[member[i]])
        loader: DataLoader[object] = DataLoader(own, batch_size=20, shuffle=True)
        optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        if noise is not None:
            engine = PrivacyEngine(coins=SeededCoins(i))
            model, optimizer, loader = engine.make_private(
                module=model,
                optimizer=optimizer,
                data_loader=loader,
                noise_multiplier=noise,
                max_grad_norm=1.0,
            )
        for _ in range(20):
            train(model, optimizer, loader)
        if noise is not None:
            epsilon = max(epsilon, engine.get_epsilon(1e-3))
        with torch.no_grad():
            found.append(model(x).double().softmax(1)[torch.arange(RECORDS), y].numpy())
    return np.array(found), member, epsilon


@pytest.mark.slow
def test_models_that_remember_are_seen_to_and_private_ones_keep_their_limit() -> None:
    p, member, _ = confidences(None)
    scores = lira(p, member)
    plain = membership(scores[member], scores[~member])
    assert plain.auc > 0.65
    p, member, epsilon = confidences(2.0)
    scores = lira(p, member)
    private = membership(scores[member], scores[~member], epsilon=epsilon, delta=1e-3)
    print(plain, private, sep="\n")  # noqa: T201
    assert private.auc < plain.auc - 0.1
    assert all(point.low < point.limit for point in private.points)
    assert all(
        one.true_positives < other.true_positives
        for one, other in zip(private.points, plain.points, strict=True)
    )
