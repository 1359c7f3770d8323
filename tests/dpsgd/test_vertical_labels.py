"""The example of two parties, one with features and one with labels."""

import numpy as np
import pytest

from ldp.testing import SeededCoins


def test_a_party_learns_from_the_private_labels_of_another(coins: SeededCoins) -> None:
    pytest.importorskip("sklearn")
    import vertical_labels  # of examples/

    people = vertical_labels.digits()
    matched = vertical_labels.match(people, np.random.default_rng(0))
    assert 0.6 < len(matched.labels) / len(people.labels) < 0.68
    ((by_krr, by_prior), (plain, _)) = vertical_labels.study(people, (2.0,), coins, seed=0)
    assert plain > 0.93
    assert 0.88 < by_krr <= plain
    assert 0.88 < by_prior <= plain
