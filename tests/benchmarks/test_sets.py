"""Speed of randomising sets beside its floor: what plain numpy does for the same channel.

The floor draws with numpy's seeded generator and rounds chances to doubles, so it is neither secure
nor exact: it is what speed costs when it is all that matters. What counts is the ratio.
"""

import numpy as np
import pytest

from ldp import Coins, SetSelection

REPORTS = 100_000
ITEMS, MOST = 100, 5

epsilons = pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])


def sets() -> np.ndarray:
    keys = np.random.default_rng(1).random((REPORTS, ITEMS))
    return np.sort(np.argpartition(keys, MOST, axis=1)[:, :MOST], axis=1)


@epsilons
@pytest.mark.benchmark(group="100,000 sets of 5 of 100 items")
def test_sets_batch_ours(benchmark, epsilon: float) -> None:
    mechanism, values = SetSelection(ITEMS, epsilon, MOST), sets()
    assert len(benchmark(mechanism.randomize_many, values, Coins())) == REPORTS


@epsilons
@pytest.mark.benchmark(group="100,000 sets of 5 of 100 items")
def test_sets_batch_floor_insecure_numpy(benchmark, epsilon: float) -> None:
    mechanism, values = SetSelection(ITEMS, epsilon, MOST), sets()
    chances = np.array([float(chance) for chance in mechanism._chances.values()])
    generator = np.random.default_rng(1)

    def floor() -> np.ndarray:
        shared = generator.choice(chances.size, REPORTS, p=chances / chances.sum())
        order = np.argsort(generator.random((REPORTS, MOST), dtype=np.float32), axis=1)
        keys = generator.random((REPORTS, ITEMS), dtype=np.float32)
        others = np.argpartition(keys, mechanism.size, axis=1)[:, : mechanism.size]
        for member in values.T:
            others += others >= member[:, np.newaxis]
        mine = np.arange(mechanism.size) < shared[:, np.newaxis]
        places = order[:, np.arange(mechanism.size) % MOST]
        return np.sort(np.where(mine, np.take_along_axis(values, places, axis=1), others), axis=1)

    assert len(benchmark(floor)) == REPORTS


@epsilons
@pytest.mark.benchmark(group="one set of 5 of 100 items")
def test_one_set(benchmark, epsilon: float) -> None:
    mechanism, coins = SetSelection(ITEMS, epsilon, MOST), Coins()
    benchmark(lambda: mechanism.encode_one(mechanism.randomize((3, 7, 50, 98, 99), coins)))
