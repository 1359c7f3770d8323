"""Who takes part in a round."""

import numpy as np
import pytest

from dpsgd.federated.drawing import KeptApart, Poisson, Uniform
from ldp import InvalidInput


def test_people_are_kept_apart_and_take_part_so_often_at_most() -> None:
    rng = np.random.default_rng(1)
    drawing = KeptApart(30, 8, participations=3, separation=4)
    rounds: dict[int, list[int]] = {}
    for number in range(1, 41):
        drawn = drawing.draw(number, rng)
        assert (np.diff(drawn) > 0).all()
        for client in drawn:
            rounds.setdefault(int(client), []).append(number)
    assert all(len(own) == 3 for own in rounds.values())  # all that is left is used up
    assert len(rounds) == 30
    assert min(min(np.diff(own)) for own in rounds.values()) >= 4
    assert drawing.draw(41, rng).size == 0


def test_uniform_draws_are_of_one_size_and_poisson_draws_are_not() -> None:
    rng = np.random.default_rng(1)
    uniform, poisson = Uniform(20, 5), Poisson(20, 0.25)
    assert {uniform.draw(i, rng).size for i in range(50)} == {5}
    sizes = [poisson.draw(i, rng).size for i in range(400)]
    assert abs(np.mean(sizes) - 5) < 4 * np.sqrt(20 * 0.25 * 0.75 / 400)
    assert len(set(sizes)) > 5
    assert Poisson(20, 0.0).draw(1, rng).size == 0


def test_wrong_numbers_are_refused() -> None:
    for clients, per_round in ((0, 1), (5, 0), (5, 6)):
        with pytest.raises(InvalidInput):
            Uniform(clients, per_round)
    with pytest.raises(InvalidInput, match="participations"):
        KeptApart(5, 2, participations=0, separation=1)
    with pytest.raises(InvalidInput, match="separation"):
        KeptApart(5, 2, participations=1, separation=0)
    with pytest.raises(InvalidInput, match="sampling rate"):
        Poisson(5, 1.5)
