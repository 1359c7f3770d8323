"""Individual accounts, beside the accountant of a record whose norm never changes."""

import numpy as np
import pytest

from dpsgd.accounting import (
    FixedSizeSampling,
    NoSampling,
    PoissonSampling,
    RDPAccountant,
    Relation,
)
from dpsgd.accounting.individual import individual_epsilons
from ldp import InvalidInput


def test_short_gradients_cost_their_records_less() -> None:
    """Each as much as the clip norm divided by its own norm multiplies the noise."""
    found = individual_epsilons(
        [[2.0, 1.0, 0.5, 0.2, 0.0]],
        max_grad_norm=2.0,
        noise_multiplier=1.3,
        sampling=PoissonSampling(0.01),
        steps=10_000,
        delta=1e-5,
    )
    assert found[:4] == pytest.approx([4.277, 1.704, 0.772, 0.284], abs=1e-3)
    assert found[4] == 0


def test_steps_with_other_norms_add_up_and_a_bound_is_never_below_the_accountant() -> None:
    accountant = RDPAccountant(Relation.ADD_REMOVE)
    accountant.step(noise_multiplier=5.0, sampling=NoSampling(), steps=30)
    accountant.step(noise_multiplier=20.0, sampling=NoSampling(), steps=20)
    (found, most) = individual_epsilons(
        [[1.0, 9.0]] * 3 + [[0.25, 9.0]] * 2,
        max_grad_norm=1.0,
        noise_multiplier=5.0,
        sampling=NoSampling(),
        steps=50,
        delta=1e-6,
    )
    exact = accountant.get_epsilon(1e-6)
    assert exact <= found < 1.001 * exact
    accountant.step(noise_multiplier=20.0, sampling=NoSampling(), steps=0)
    clipped = RDPAccountant(Relation.ADD_REMOVE)
    clipped.step(noise_multiplier=5.0, sampling=NoSampling(), steps=50)
    assert clipped.get_epsilon(1e-6) <= most < 1.001 * clipped.get_epsilon(1e-6)


@pytest.mark.parametrize(
    ("norms", "options"),
    [
        ([[-1.0]], {}),
        ([[np.nan]], {}),
        ([[np.inf]], {}),
        ([[[1.0]]], {}),
        ([[1.0]] * 3, {"steps": 2}),
        ([[1.0]], {"sampling": FixedSizeSampling(1, 2)}),
        ([[1.0]], {"noise_multiplier": 0.0}),
        ([[1.0]], {"max_grad_norm": 0.0}),
        ([[1.0]], {"delta": 1.0}),
    ],
)
def test_bad_input_is_refused(norms, options) -> None:
    good = {"max_grad_norm": 1.0, "noise_multiplier": 1.0, "sampling": NoSampling(), "steps": 5}
    with pytest.raises(InvalidInput):
        individual_epsilons(norms, **good | {"delta": 1e-5} | options)
