"""Words: speed of reports, and what discovery finds among 46,000 English words and in names.

The floor of a batch is splitmix64's rows with numpy alone. Recall is the share of the 20 most
frequent words that the list has; a row of docs/benchmarks.md is the mean of some seeds.
"""

import gzip
import time
from pathlib import Path
from string import ascii_lowercase

import numpy as np
import pytest
from numpy.typing import NDArray

from ldp import Coins, PrefixHashing
from ldp.core.repeated import Repeats
from ldp.estimating.discovery import discover
from ldp.estimating.words import estimate_words
from ldp.testing import SeededCoins

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
LETTERS = ascii_lowercase + "'"
ONCE = Repeats()

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the data sets are not here")


def english() -> dict[str, int]:
    with gzip.open(DATA / "words-en50k" / "en_50k.txt.gz", "rt", encoding="utf-8") as file:
        counts = {word: int(count) for word, count in map(str.split, file)}
    return {w: c for w, c in counts.items() if len(w) <= 12 and set(w) <= set(LETTERS)}


def names() -> dict[str, int]:
    counts: dict[str, int] = {}
    with gzip.open(DATA / "babynames" / "yob2010.txt.gz", "rt", encoding="utf-8") as file:
        for line in file:
            name, _, births = line.strip().lower().split(",")
            if len(name) <= 12:
                counts[name] = counts.get(name, 0) + int(births)
    return dict(sorted(counts.items(), key=lambda item: -item[1]))


def drawn(
    mechanism: PrefixHashing, counts: dict[str, int], n: int, seed: int
) -> NDArray[np.uint64]:
    shares = np.array(list(counts.values()), dtype=float)
    numbers = mechanism.spelling.numbers(counts)
    return np.random.default_rng(seed).choice(numbers, n, p=shares / shares.sum())


@pytest.mark.benchmark(group="words, batch of 1M reports")
@pytest.mark.parametrize("epsilon", [1.0, 2.0, 4.0])
def test_words_batch_ours(benchmark, epsilon: float) -> None:
    mechanism = PrefixHashing.over(LETTERS, 12, epsilon)
    values = drawn(mechanism, english(), 1_000_000, 1)
    assert benchmark(mechanism.randomize_many, values, Coins()).shape == (1_000_000,)


@pytest.mark.benchmark(group="words, batch of 1M reports")
@pytest.mark.parametrize("epsilon", [1.0, 2.0, 4.0])
def test_words_batch_floor_rows_alone(benchmark, epsilon: float) -> None:
    mechanism = PrefixHashing.over(LETTERS, 12, epsilon)
    seeds = np.arange(1_000_000, dtype=np.uint32)

    def floor() -> int:
        blocks = np.split(seeds[: 61 << 14], 61)
        return sum(len(list(mechanism.each_row(block))) for block in blocks)

    assert benchmark(floor) == 61 * mechanism.rows


@pytest.mark.benchmark(group="words, 46,000 listed words in 1M reports")
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_words_of_a_known_dictionary(benchmark, epsilon: float) -> None:
    mechanism, counts = PrefixHashing.whole(LETTERS, 12, epsilon), english()
    codes = mechanism.randomize_many(drawn(mechanism, counts, 1_000_000, 1), Coins())
    cohorts = [(mechanism, codes, ONCE)]
    found = benchmark.pedantic(estimate_words, (cohorts, list(counts)), rounds=1)
    assert found.value.shape == (len(counts),)


@pytest.mark.benchmark(group="words, discovery")
@pytest.mark.parametrize(
    ("source", "n", "epsilon", "periods", "recall"),
    [
        (english, 100_000, 1.0, 1, 0.05),
        (english, 100_000, 2.0, 1, 0.35),
        (english, 100_000, 4.0, 1, 0.95),
        (english, 1_000_000, 1.0, 1, 0.6),
        (english, 1_000_000, 2.0, 1, 0.95),
        (english, 1_000_000, 4.0, 1, 1.0),
        (english, 100_000, 2.0, 3, 0.7),
        (english, 1_000_000, 1.0, 3, 0.85),
        (names, 1_000_000, 4.0, 1, 0.95),
        (names, 1_000_000, 2.0, 3, 0.6),
    ],
)
def test_words_that_are_found(benchmark, source, n, epsilon, periods, recall) -> None:
    mechanism, counts = PrefixHashing.over(LETTERS, 12, epsilon), source()
    people = drawn(mechanism, counts, n, 7)
    cohorts = [
        (mechanism, mechanism.randomize_many(people, SeededCoins(period)), Repeats(periods))
        for period in range(periods)
    ]
    start = time.process_time()
    found = benchmark.pedantic(discover, (cohorts,), rounds=1).words
    benchmark.extra_info["processor_s"] = time.process_time() - start
    held = len(set(list(counts)[:20]) & set(found)) / 20
    benchmark.extra_info["recall"] = held
    assert held >= recall - 0.1
    assert sum(word in counts for word in found) >= 0.95 * len(found)
