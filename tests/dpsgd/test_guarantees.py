"""The account of everything that was promised."""

import functools
import math

import pytest

from dpsgd.accounting import (
    CentralLimitApproximation,
    NoSampling,
    PoissonSampling,
    RDPAccountant,
    Relation,
)
from dpsgd.reports.contraction import contracted_epsilon, replacement_epsilon
from dpsgd.reports.guarantees import account
from ldp import HRR, KRR, InvalidInput

LEVELS = {"strict": [KRR(10, 1.0)], "open": [KRR(10, 4.0)]}


def trained(noise: float, steps: int, relation: Relation) -> RDPAccountant:
    accountant = RDPAccountant(relation)
    accountant.step(noise_multiplier=noise, sampling=NoSampling(), steps=steps)
    return accountant


def test_without_noise_only_the_reports_protect() -> None:
    found = account(LEVELS, delta=1e-5)
    assert [level.model for level in found.levels] == [
        KRR(10, 1.0).realised_epsilon,
        KRR(10, 4.0).realised_epsilon,
    ]
    assert found.spent == math.inf
    assert "training: without noise" in str(found)
    assert "  strict         1       inf            1  1, local" in str(found)
    assert "delta 1e-05" not in str(found)


def test_every_figure_is_of_the_mathematics_below() -> None:
    accountant = trained(40.0, 100, Relation.ADD_REMOVE)
    found = account(LEVELS, delta=1e-5, accountant=accountant)
    assert found.spent == accountant.get_epsilon(1e-5)
    assert found.relation is Relation.ADD_REMOVE
    for level in found.levels:
        record = LEVELS[level.level]
        replaced = functools.partial(replacement_epsilon, accountant.get_epsilon)
        assert level.local == record[0].realised_epsilon
        assert level.central == replaced(1e-5) > 2 * found.spent
        assert level.contracted == contracted_epsilon(record, replaced, 1e-5)
        assert level.model == min(level.local, level.central, level.contracted)


def test_an_accountant_of_replacements_is_taken_as_it_is() -> None:
    accountant = trained(40.0, 100, Relation.REPLACE_ONE)
    found = account(LEVELS, delta=1e-5, accountant=accountant)
    assert {level.central for level in found.levels} == {accountant.get_epsilon(1e-5)}


def test_the_contraction_gives_more_than_either() -> None:
    accountant = trained(40.0, 100, Relation.REPLACE_ONE)
    strict, open_ = account(LEVELS, delta=1e-5, accountant=accountant).levels
    assert {strict.why, open_.why} == {"contraction"}
    assert strict.model < 0.8 * strict.local < strict.central
    assert open_.model < 0.9 * open_.central < open_.local


def test_several_reports_of_a_record_add_up() -> None:
    (level,) = account({"only": [KRR(10, 1.0), HRR(4, 0.5)]}, delta=1e-5).levels
    assert level.local == pytest.approx(1.5, rel=1e-9)


def test_the_account_is_printed() -> None:
    found = account(LEVELS, delta=1e-5, accountant=trained(40.0, 100, Relation.ADD_REMOVE))
    lines = str(found).splitlines()
    assert lines[0] == f"training: ({found.spent:.4g}, 1e-05)-DP in rows, add_remove"
    assert lines[-2] == "  local, at delta 0: against whoever sees the reports"
    assert lines[-1] == "  the others, at delta 1e-05: against who sees the model alone"
    for level, line in zip(found.levels, lines[3:-2], strict=True):
        bounds = level.local, level.central, level.contracted
        assert line.split() == [
            level.level,
            *(f"{bound:.4g}" for bound in bounds),
            f"{min(bounds):.4g},",
            level.why,
        ]


@pytest.mark.parametrize(("records", "delta"), [({}, 1e-5), (LEVELS, 0.0), (LEVELS, 1.0)])
def test_bad_input_is_refused(records, delta) -> None:
    with pytest.raises(InvalidInput, match="an account needs records and 0 < delta < 1"):
        account(records, delta=delta)


def test_an_accountant_that_only_approximates_is_refused() -> None:
    accountant = CentralLimitApproximation(Relation.ADD_REMOVE)
    accountant.step(noise_multiplier=1.0, sampling=PoissonSampling(0.01), steps=100)
    with pytest.raises(InvalidInput, match="only approximates"):
        account(LEVELS, delta=1e-5, accountant=accountant)
