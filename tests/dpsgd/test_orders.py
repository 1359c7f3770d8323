"""What is accounted for, beside all that a record can have been part of, for any order of calls."""

import itertools
import math
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from private import data, make

from dpsgd import PrivacyEngine
from ldp.testing import SeededCoins

ACTIONS = st.lists(
    st.sampled_from(
        ["draw", "backward", "step", "draw, backward, step", "new epoch", "less noise"]
    ),
    max_size=12,
)


class Loop:
    """Do as told where that is allowed, and note which batches went into which step."""

    def __init__(self, sampling: str) -> None:
        engine = PrivacyEngine(coins=SeededCoins(1))
        self.engine, self.module, self.optimizer, self.loader = make(
            engine, dataset=data(12), batch=4, sampling=sampling, noise=4.0
        )
        self.shuffled = sampling == "shuffle"
        self.batches: Any = iter(())
        self.x: Any = None
        self.round = self.drawn = 0
        self.backward_done = False
        self.pending: list[tuple[int, int]] = []
        self.releases: list[tuple[float, list[tuple[int, int]]]] = []

    def do(self, action: str) -> None:
        if action == "new epoch":
            self.batches = iter(())
        elif action == "draw":
            self.draw()
        elif action == "less noise":
            self.engine.noise_multiplier *= 0.8
        elif self.x is not None and action == "backward" and not self.backward_done:
            self.module(self.x).sum().backward()
            self.backward_done = True
            self.pending.append((self.round, self.drawn))
        elif self.x is not None and action == "step":
            self.optimizer.step()
            self.releases.append((self.engine.noise_multiplier, self.pending))
            self.pending, self.x = [], None

    def draw(self) -> None:
        batch = next(self.batches, None)
        if batch is None:
            self.batches = iter(self.loader)
            batch = next(self.batches)
            self.round += self.shuffled
        self.round += not self.shuffled
        self.x, self.backward_done, self.drawn = batch[0], False, self.drawn + 1

    def worst(self) -> float:
        """Return the squared mean shift, over noise of deviation 1, of the unluckiest record.

        It is in one batch of each round, and moves a step by as many norms as it has batches there.
        """
        choices = defaultdict(list)
        for _, used in self.releases:
            for number, batch in used:
                choices[number].append(batch)
        return max(
            sum(
                (sum(batch in chosen for _, batch in used) / noise) ** 2
                for noise, used in self.releases
            )
            for chosen in map(set, itertools.product(*choices.values()))
        )


@pytest.mark.parametrize("sampling", ["fixed", "shuffle"])
@given(actions=ACTIONS)
@settings(max_examples=80, deadline=None)
def test_no_record_takes_part_in_more_than_is_accounted_for(
    sampling: str, actions: list[str]
) -> None:
    loop = Loop(sampling)
    for action in ", ".join(actions).split(", "):
        loop.do(action)
    history = loop.engine.accountant.history
    accounted = math.fsum(event.steps / event.noise_multiplier**2 for event in history)
    assert accounted >= loop.worst() * (1 - 1e-12)
    assert sum(event.steps for event in history) >= 1 or not loop.releases
