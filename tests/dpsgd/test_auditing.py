"""One-run auditing: published figures, an exact simulation of its bound, and broken noise."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import binom
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils.data import DataLoader, TensorDataset

from dpsgd import FlatClipping, PrivacyEngine
from dpsgd.auditing import (
    OneRunAudit,
    audit_by_likelihood,
    audit_one_run,
    choose_canaries,
    one_run_lower_bound,
    one_run_p_value,
)
from ldp import KRR, InvalidInput
from ldp.testing import SeededCoins


@pytest.mark.parametrize(("guesses", "expected"), [(10, 1.052), (1000, 5.809)])
def test_all_guesses_right_give_the_published_bounds(guesses: int, expected: float) -> None:
    found = one_run_lower_bound(0.0, guesses, guesses, guesses)
    assert found == pytest.approx(expected, abs=6e-4)
    # All right has the chance (e / (e + 1))**r.
    assert found == pytest.approx(-math.log(0.05 ** (-1 / guesses) - 1), abs=1e-6)


def naive_p_value(epsilon: float, delta: float, m: int, r: int, v: int) -> float:
    q = math.exp(epsilon) / (math.exp(epsilon) + 1)

    def tail(count: int) -> float:
        return sum(math.comb(r, j) * q**j * (1 - q) ** (r - j) for j in range(max(count, 0), r + 1))

    alpha = max((tail(v - i) - tail(v)) / i for i in range(1, m + 1))
    return min(1.0, tail(v) + 2 * m * delta * alpha)


@pytest.mark.parametrize("right", [0, 1, 12, 19, 20])
@pytest.mark.parametrize("delta", [0.0, 1e-6, 1e-2, 1.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 3.0])
def test_the_p_value_is_that_of_the_formula(epsilon: float, delta: float, right: int) -> None:
    found = one_run_p_value(epsilon, delta, 30, 20, right)
    assert found == pytest.approx(naive_p_value(epsilon, delta, 30, 20, right), rel=1e-9)


def test_a_delta_weakens_the_bound_and_so_do_wrong_guesses() -> None:
    bounds = [one_run_lower_bound(delta, 1000, 100, 100) for delta in (0, 1e-6, 1e-5, 1e-4)]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[0] > bounds[-1]
    bounds = [one_run_lower_bound(1e-5, 1000, 100, right) for right in (100, 90, 70, 50, 0)]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[-1] == 0


def test_the_bound_is_the_largest_epsilon_that_is_rejected() -> None:
    found = one_run_lower_bound(1e-5, 1000, 200, 180)
    assert one_run_p_value(found, 1e-5, 1000, 200, 180) <= 0.05
    assert one_run_p_value(found + 1e-6, 1e-5, 1000, 200, 180) > 0.05


def test_the_test_is_sharp_for_randomised_response() -> None:
    """Every canary answers by itself: its bit, with odds e. The best that epsilon 1 allows."""
    m, epsilon = 400, 1.0
    found = binom.rvs(m, math.e / (math.e + 1), size=4000, random_state=1)
    bounds = {right: one_run_lower_bound(0.0, m, m, right) for right in np.unique(found).tolist()}
    rejected = np.mean([bounds[right] > epsilon for right in found.tolist()])
    assert 0.03 < rejected <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 4000)
    assert np.mean([bounds[right] for right in found.tolist()]) > 0.75 * epsilon


@pytest.mark.slow
def test_a_failure_of_probability_delta_is_allowed_for() -> None:
    """With chance delta for each of m canaries everything is given away, else nothing: (0, delta).

    Counted without delta, such a training would be accused far too often.
    """
    m, delta, guesses = 1000, 0.003, 5
    source = np.random.default_rng(4)
    accused = {0.0: 0, delta: 0}
    for _ in range(2000):
        included = source.random(m) < 0.5
        shown = source.random(m) < delta
        scores = np.where(shown & included, 2.0, source.random(m))
        for allowed in accused:
            found = audit_one_run(
                scores, included, claimed=0.0, delta=allowed, guess_in=guesses, guess_out=0
            )
            accused[allowed] += found.violated
    assert accused[0.0] > 200
    assert accused[delta] <= 100 + 3 * math.sqrt(95)


def test_guesses_are_the_largest_and_the_smallest_scores() -> None:
    included = np.array([True, False, True, False, True])
    scores = [9.0, 8.0, 0.5, 0.1, 0.2]
    found = audit_one_run(scores, included, claimed=1.0, delta=0.0, guess_in=2, guess_out=1)
    assert (found.right, found.guesses, found.canaries) == (2, 3, 5)
    found = audit_one_run(scores, included, claimed=1.0, delta=0.0, guess_in=1, guess_out=0)
    assert (found.right, found.guesses) == (1, 1)


def test_canaries_are_chosen_by_fair_coins(coins: SeededCoins) -> None:
    chosen = choose_canaries(10_000, coins)
    assert chosen.dtype == np.bool_
    assert abs(chosen.mean() - 0.5) < 0.02
    with pytest.raises(InvalidInput, match="needs a canary"):
        choose_canaries(0, coins)


class UnderstatedClipping(FlatClipping):
    """A sensitivity that is a tenth of the truth, and so a tenth of the noise."""

    @property
    def sensitivity(self) -> float:
        return self.max_grad_norm / 10


def audited(policy: FlatClipping, seed: int) -> OneRunAudit:
    """Train a logistic regression on all rows at every step, and audit what it remembers.

    Canary i has a column of its own, and is one row of the training if it was chosen.
    """
    m, rows, steps = 500, 200, 20
    included = choose_canaries(m, SeededCoins(seed))
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.zeros(rows + m, 5 + m)
    inputs[:rows, :5] = torch.randn(rows, 5, generator=generator)
    inputs[rows:, 5:] = 20 * torch.eye(m)
    labels = torch.randint(2, (rows + m,), generator=generator).float()
    labels[:rows] = (inputs[:rows].sum(1) > 0).float()
    member = torch.cat([torch.ones(rows, dtype=torch.bool), torch.as_tensor(included)])
    data = TensorDataset(inputs[member], labels[member])
    model = torch.nn.Linear(5 + m, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    engine = PrivacyEngine(coins=SeededCoins(seed + 100))
    private, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.001),
        data_loader=DataLoader(data, batch_size=len(data)),
        noise_multiplier=5.0,
        max_grad_norm=policy,
        loss_reduction="sum",
    )
    for _ in range(steps):
        for x, y in loader:
            optimizer.zero_grad()
            binary_cross_entropy_with_logits(private(x)[:, 0], y, reduction="sum").backward()
            optimizer.step()
    weights = model.weight.detach()[0, 5:]
    scores = (2 * labels[rows:] - 1) * weights
    claimed = engine.get_epsilon(1e-5)
    return audit_one_run(
        scores.numpy(), included, claimed=claimed, delta=1e-5, guess_in=200, guess_out=200
    )


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_tenth_of_the_noise_is_caught_and_all_of_it_is_not(seed: int) -> None:
    honest = audited(FlatClipping(1.0), seed)
    broken = audited(UnderstatedClipping(1.0), seed)
    assert honest.claimed == broken.claimed
    assert not honest.violated
    assert honest.lower_bound > 0.1  # it did learn something
    assert broken.violated
    assert broken.p_value < 0.05 < honest.p_value
    assert str(broken).startswith("VIOLATES")
    assert str(honest).startswith("no violation of")


@pytest.mark.parametrize(
    ("scores", "included", "counts", "reason"),
    [
        ([1.0, 2.0], [True], (1, 0), r"got \(2,\) and bool of shape \(1,\)"),
        ([1.0], [1], (1, 0), "and int64 of shape"),
        ([math.nan], [True], (1, 0), "finite"),
        ([1.0], [True], (0, 0), r"1 canaries allow 1\.\.1 guesses, got 0 \+ 0"),
        ([1.0, 2.0], [True, False], (2, 1), r"got 2 \+ 1"),
        ([1.0, 2.0], [True, False], (-1, 2), r"got -1 \+ 2"),
    ],
    ids=["lengths", "integers", "nan", "none", "overlap", "negative"],
)
def test_bad_scores_and_guesses_are_refused(scores, included, counts, reason) -> None:
    with pytest.raises(InvalidInput, match=reason):
        audit_one_run(
            scores,
            np.array(included),
            claimed=1.0,
            delta=0.0,
            guess_in=counts[0],
            guess_out=counts[1],
        )


@pytest.mark.parametrize(
    "arguments",
    [
        (1.0, 0.0, 10, 5, 6),
        (1.0, 0.0, 4, 5, 5),
        (1.0, 0.0, 4, 0, 0),
        (-1.0, 0.0, 4, 2, 1),
        (math.nan, 0.0, 4, 2, 1),
        (1.0, -0.1, 4, 2, 1),
        (1.0, 1.5, 4, 2, 1),
    ],
)
def test_a_p_value_of_what_cannot_be_is_refused(arguments) -> None:
    with pytest.raises(InvalidInput, match="expected"):
        one_run_p_value(*arguments)


@pytest.mark.parametrize("confidence", [0.0, 1.0, math.nan])
def test_a_bad_confidence_is_refused(confidence: float) -> None:
    with pytest.raises(InvalidInput, match="confidence must lie strictly between"):
        one_run_lower_bound(0.0, 10, 5, 5, confidence)


@pytest.mark.parametrize(
    ("epsilon", "m", "expected"),
    [(1, 1_000, 0.8806), (1, 10_000, 0.9629), (4, 1_000, 3.6008), (4, 10_000, 3.8744)],
)
def test_canaries_of_two_answers_are_expected_to_come_so_near_to_epsilon(
    epsilon: float, m: int, expected: float
) -> None:
    right = round(m / (1 + math.exp(-epsilon)))
    coins = np.arange(m) % 2 == 0
    ratios = np.where(coins, epsilon, -epsilon) * np.where(np.arange(m) < right, 1, -1)
    found = audit_by_likelihood(ratios, coins, claimed=epsilon)
    assert (found.canaries, found.guesses, found.right) == (m, m, right)
    assert found.lower_bound == pytest.approx(expected, abs=6e-4)
    assert not found.violated


def krr_reports(m: int, truthful: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return log-ratios and coins of canaries with the answers 0 and 9 of KRR(10, 1), of whom
    some send the truth in clear."""
    drawn = SeededCoins(seed)
    coins = drawn.bernoulli_many(1 << 63, m)
    codes = KRR(10, 1.0).randomize_many(np.where(coins, 9, 0), drawn).astype(int)
    clear = drawn.bernoulli_many(int(truthful * 2**64), m)
    codes[clear] = np.where(coins, 9, 0)[clear]
    return np.select([codes == 9, codes == 0], [1.0, -1.0], 0.0), coins


def test_canaries_find_a_truth_that_is_sent_in_clear() -> None:
    honest = audit_by_likelihood(*krr_reports(10_000, 0.0, 1), claimed=1.0)
    assert 0.85 < honest.lower_bound < 1
    leaking = audit_by_likelihood(*krr_reports(10_000, 0.4, 1), claimed=1.0)
    assert leaking.lower_bound == pytest.approx(2.22, abs=0.1)
    assert leaking.p_value < 1e-200
    assert leaking.violated


def test_canaries_accuse_what_keeps_its_epsilon_as_seldom_as_the_confidence_says() -> None:
    generator = np.random.default_rng(5)
    accused = 0
    for _ in range(200):
        coins = generator.random(100) < 0.5
        ratios = np.where(coins, 0.5, -0.5) * np.where(generator.random(100) < 0.6225, 1, -1)
        accused += audit_by_likelihood(ratios, coins, claimed=0.5).violated
    assert accused / 200 < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 200)


def test_the_most_telling_reports_are_guessed_and_equal_ones_together() -> None:
    coins = np.arange(400) % 2 == 0
    ratios = np.where(coins, 1, -1) * np.repeat([4.0, 0.1, 0.0], [100, 200, 100])
    found = audit_by_likelihood(ratios, coins, claimed=4.0)
    assert (found.guesses, found.right) == (100, 100)
    nothing = audit_by_likelihood(0 * ratios, coins, claimed=4.0)
    assert (nothing.guesses, nothing.lower_bound, nothing.p_value) == (0, 0.0, 1.0)


@pytest.mark.parametrize(
    ("ratios", "coins", "message"),
    [
        ([1.0], [True, False], "booleans"),
        ([1.0], [1], "booleans"),
        ([], np.zeros(0, dtype=bool), "needs a canary"),
        ([math.inf], [True], "finite"),
    ],
)
def test_an_audit_by_likelihood_of_what_cannot_be_is_refused(
    ratios: object, coins: object, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        audit_by_likelihood(ratios, coins, claimed=1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("canaries", "share", "part", "accused"),
    [
        (500, 0.4, 0.5, (0, 0)),
        (500, 0.4, 0.1, (10, 10)),
        (2000, 0.1, 0.25, (9, 10)),
        (10_000, 0.02, 0.7, (0, 0)),
        (10_000, 0.02, 0.5, (2, 8)),
        (10_000, 0.02, 0.35, (9, 10)),
    ],
)
def test_an_audit_sees_as_little_as_the_guide_says(
    canaries: int, share: float, part: float, accused: tuple[int, int]
) -> None:
    """A canary's sum is normal, at all of the noise with mean sqrt(20) / 5 where it is in."""
    rng, guesses, found = np.random.default_rng(3), int(share * canaries), 0
    for _ in range(10):
        included = rng.random(canaries) < 0.5
        scores = math.sqrt(20) / 5 / part * included + rng.normal(size=canaries)
        audit = audit_one_run(
            scores, included, claimed=4.19, delta=1e-5, guess_in=guesses, guess_out=guesses
        )
        found += audit.p_value <= 0.05
    assert accused[0] <= found <= accused[1]
