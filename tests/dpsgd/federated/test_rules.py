"""The rules against loops that are obviously right, and what they refuse."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dpsgd.federated import rules
from hearsay.federated import parsing
from ldp import InvalidInput

UPDATES = np.random.default_rng(1).standard_normal((9, 40)).astype(np.float32)


def loop_krum(updates: Any, hostile: int) -> list[float]:
    scores = []
    for i, own in enumerate(updates):
        distances = sorted(
            float(((own.astype(float) - other) ** 2).sum())
            for j, other in enumerate(updates)
            if j != i
        )
        scores.append(sum(distances[: len(updates) - hostile - 2]))
    return scores


def loop_trimmed(updates: Any, hostile: int) -> list[float]:
    n = len(updates)
    return [
        float(np.mean(sorted(column)[hostile : n - hostile])) for column in updates.T.astype(float)
    ]


@pytest.fixture(params=["one block", "many blocks"])
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "many blocks":
        monkeypatch.setattr(rules, "_BLOCK", 7 * len(UPDATES))  # 40 columns: 5 of 7, and 5


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("give", [np.asarray, list], ids=["an array", "a list"])
class TestAgainstLoops:
    def test_the_median_and_the_trimmed_mean(self, give: Callable[[Any], Any]) -> None:
        for n in (8, 9):
            found = rules.median(give(UPDATES[:n]))
            np.testing.assert_allclose(found, np.median(UPDATES[:n].astype(float), axis=0))
            for hostile in (0, 1, 3):
                found = rules.trimmed_mean(give(UPDATES[:n]), hostile)
                np.testing.assert_allclose(found, loop_trimmed(UPDATES[:n], hostile), rtol=1e-6)

    def test_krum_and_multi_krum(self, give: Callable[[Any], Any]) -> None:
        for hostile in range(4):
            scores = loop_krum(UPDATES, hostile)
            np.testing.assert_array_equal(
                rules.krum(give(UPDATES), hostile), UPDATES[int(np.argmin(scores))]
            )
            best = np.argsort(scores)[: 9 - hostile]
            np.testing.assert_allclose(
                rules.multi_krum(give(UPDATES), hostile), UPDATES[best].mean(axis=0), atol=1e-6
            )

    def test_the_geometric_median_is_nearer_to_all_than_points_around(
        self, give: Callable[[Any], Any]
    ) -> None:
        def total(point: Any) -> float:
            return float(np.linalg.norm(UPDATES - point, axis=1).sum())

        found = rules.geometric_median(give(UPDATES))
        rng = np.random.default_rng(2)
        for point in (UPDATES.mean(axis=0), np.median(UPDATES, axis=0), *UPDATES):
            assert total(found) <= total(point)
        for _ in range(20):
            assert total(found) <= total(found + 0.05 * rng.standard_normal(40))

    def test_norms_are_clipped_to_their_median(self, give: Callable[[Any], Any]) -> None:
        norms = np.linalg.norm(UPDATES.astype(float), axis=1)
        clipped = UPDATES * np.minimum(1, np.median(norms) / norms)[:, None]
        np.testing.assert_allclose(rules.median_norm(give(UPDATES)), clipped.mean(axis=0))

    def test_the_mean(self, give: Callable[[Any], Any]) -> None:
        np.testing.assert_allclose(rules.mean(give(UPDATES)), UPDATES.mean(axis=0), atol=1e-6)


def test_the_mean_weighs_a_stream_of_updates() -> None:
    weights = list(range(45))  # more than are added in float32 at once
    updates = np.tile(UPDATES, (5, 1))
    found = rules.mean(iter(updates), weights)
    np.testing.assert_allclose(found, np.average(updates, axis=0, weights=weights), atol=1e-6)


@pytest.mark.parametrize("rule", [r for r in rules.RULES if r != "mean"])
def test_a_robust_rule_stays_near_the_honest_updates(rule: str) -> None:
    rng = np.random.default_rng(3)
    honest = 1 + 0.1 * rng.standard_normal((16, 50)).astype(np.float32)
    forged = np.full((4, 50), -1e6, np.float32)
    both = rng.permutation(np.concatenate([honest, forged]))
    hostile = 4 if rule in ("trimmed_mean", "krum", "multi_krum") else 0
    error = np.abs(rules.RULES[rule](both, hostile) - 1).max()
    assert error < (0.9 if rule == "median_norm" else 0.4)


def test_the_order_of_the_updates_moves_no_order_statistic() -> None:
    mixed = np.random.default_rng(4).permutation(UPDATES)
    for rule, hostile in (("median", 0), ("trimmed_mean", 2), ("krum", 2)):
        first, second = (rules.RULES[rule](updates, hostile) for updates in (UPDATES, mixed))
        np.testing.assert_allclose(first, second, rtol=1e-12)


@pytest.mark.parametrize("rule", rules.RULES)
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ([], "at least 1 update, got none"),
        ([np.ones(3, np.float32)] * 4 + [np.ones(2, np.float32)], "must have 3 values, got 2"),
        ([np.ones((3, 1), np.float32)] * 5, "must be a vector of floats"),
        ([np.ones(3, int)] * 5, "must be a vector of floats"),
        ([np.ones(0, np.float32)] * 5, "must have 1 or more values"),
        ([np.array([1, np.nan], np.float32)] + [np.ones(2, np.float32)] * 4, "nan|finite"),
        ([np.array([1, np.inf], np.float32), np.array([1, -np.inf], np.float32)], "inf|finite"),
    ],
)
def test_wrong_updates_are_refused(rule: str, wrong: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        rules.RULES[rule](wrong, 0)


def peak(work: Callable[[], object]) -> int:
    """The most bytes that were in use beside what there was before."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_mean_keeps_a_few_vectors_however_many_there_are() -> None:
    d = 20_000
    stream = (np.ones(d, np.float32) for _ in range(100))
    assert peak(lambda: rules.mean(stream, [1.0, 2.0] * 50)) < 8 * 4 * d


@pytest.mark.parametrize("rule", [r for r in rules.RULES if r != "mean"])
def test_robust_rules_work_in_blocks(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "_BLOCK", 2**14)
    updates = [np.full(40_000, i, np.float32) for i in range(20)]
    hostile = 4 if rule in rules._LEAST else 0
    result = 8 * 40_000
    assert peak(lambda: rules.RULES[rule](updates, hostile)) < 3 * result + 20 * 2**14


def test_a_rule_knows_how_many_updates_it_needs() -> None:
    for rule, hostile, least in (("trimmed_mean", 2, 5), ("krum", 2, 7), ("multi_krum", 3, 9)):
        rules.check_rule(rule, least, hostile)
        with pytest.raises(InvalidInput, match=f"needs at least {least} updates, got {least - 1}"):
            rules.check_rule(rule, least - 1, hostile)
        with pytest.raises(InvalidInput, match="needs at least"):
            rules.RULES[rule](UPDATES[: least - 1], hostile)
    with pytest.raises(InvalidInput, match="median needs no number of hostile updates, got 1"):
        rules.check_rule("median", 5, 1)
    with pytest.raises(InvalidInput, match="rule must be one of mean, median"):
        rules.check_rule("mode", 5, 0)
    with pytest.raises(InvalidInput, match="hostile"):
        rules.check_rule("krum", 5, -1)


@pytest.mark.parametrize(
    "weights", [[1.0] * 8, [1.0] * 10, [0.0] * 9, [np.nan] + [1.0] * 8, [-1.0] * 9]
)
def test_wrong_weights_are_refused(weights: list[float]) -> None:
    with pytest.raises(InvalidInput, match="weights"):
        rules.mean(UPDATES, weights)


@pytest.mark.parametrize("rule", sorted({*rules.RULES, *parsing.RULES}))
def test_a_declaration_knows_the_rules_and_how_many_updates_they_need(rule: str) -> None:
    assert rule in rules.RULES
    assert rule in parsing.RULES
    factor, more = parsing._LEAST_FACTOR.get(rule, (0, 0))
    for hostile in range(1, 6) if factor else ():
        least = factor * hostile + more
        rules.check_rule(rule, least, hostile)
        with pytest.raises(InvalidInput, match=f"at least {least} "):
            rules.check_rule(rule, least - 1, hostile)
    if not factor:
        rules.check_rule(rule, 1, 0)
