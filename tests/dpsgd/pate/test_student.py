"""The example's teachers and students, on small images."""

import numpy as np
import pytest
from idx import Split

from ldp.testing import SeededCoins


def test_students_learn_digits_from_the_votes_of_teachers() -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    import pate_mnist  # of examples/

    data = datasets.load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    images, labels = (data.images * 15).astype(np.uint8)[order], data.target.astype(np.uint8)[order]
    train, test = Split(images[:1000], labels[:1000]), Split(images[1000:], labels[1000:])
    votes = pate_mnist.ask_teachers(train, test, np.random.default_rng(1), teachers=50, asked=200)
    assert 0.6 < votes.teacher < 0.9
    rows = pate_mnist.study(votes, test, SeededCoins(1), reveal=True)
    truth, plurality, plain, every, half = rows
    assert plurality.right > votes.teacher  # together they know more than each
    assert truth.student > 0.85
    for row in (plain, every, half):
        assert row.right > 0.75
        assert row.student > 0.7
        assert row.epsilon is not None
        assert row.at_these_votes is not None
        assert row.at_these_votes < row.epsilon
    assert half.epsilon < every.epsilon
    assert int(half.answered.removesuffix(" of 200")) <= 100
    assert f"| {half.epsilon:.2f} |" in pate_mnist.table(rows)
    assert f"{half.at_these_votes:.2f}" not in pate_mnist.table(rows)
