"""Joint tables and regressions of real people, against what their true answers say."""

import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ldp import KRR, PiecewiseMechanism, SubsetSelection
from ldp.core.estimation import Cohorts
from ldp.core.mechanism import Mechanism
from ldp.estimating.independence import independence
from ldp.estimating.joint import differences_between, joint, means_within, within
from ldp.estimating.logistic import logistic
from ldp.estimating.pairs import count_pairs
from ldp.estimating.raking import Margin, rake
from ldp.estimating.regression import Indicator, Number, Records, linear
from ldp.estimating.weighting import weighted
from ldp.testing import SeededCoins

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DATA.is_dir(), reason="the data sets are not here"),
]
RUNS = 40


def codes(series: pd.Series) -> tuple[np.ndarray, list[str]]:
    """Return the categories of a column, and its values in order."""
    found, values = pd.factorize(series, sort=True)
    return found, list(values)


def randomised(mechanisms: list[Mechanism], values: list[np.ndarray], seed: int) -> Records:
    coins = SeededCoins(seed)
    each = zip(mechanisms, values, strict=True)
    return Records(mechanisms, [m.randomize_many(v, coins) for m, v in each])


def naive_ols(y: np.ndarray, design: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.linalg.lstsq(design, y, rcond=None)[0]
    return found


def checked(away: list[np.ndarray], errors: list[np.ndarray]) -> None:
    """Check that estimates of the answers at hand are unbiased, and that intervals cover them."""
    z = np.array(away) / np.array(errors)
    assert np.abs(z.mean(axis=0)).max() < 4.5 / len(z) ** 0.5
    covered = (np.abs(z) < 1.96).mean()
    assert covered > 0.9  # of the people asked: sampling them is in the errors, too


def test_activity_by_sleep_and_gender_of_students() -> None:
    table = pd.read_csv(DATA / "yrbss" / "yrbss.csv.gz", dtype=str)
    names = ["gender", "school_night_hours_sleep", "physically_active_7d"]
    table = table[names].dropna()
    gender, _ = codes(table.iloc[:, 0])
    sleep, hours = codes(table.iloc[:, 1])
    days = table.iloc[:, 2].astype(float).to_numpy()
    mechanisms: list[Mechanism] = [KRR(2, 2.0), SubsetSelection(7, 2.0), PiecewiseMechanism(2.0)]
    truth = np.array([days[sleep == v].mean() for v in range(7)])
    pairs = np.bincount(gender * 7 + sleep, minlength=14).reshape(2, 7) / len(table)
    shares = pairs / pairs.sum(axis=1, keepdims=True)
    design = np.stack([np.ones(len(table)), gender, *(sleep == v for v in range(1, 7))], axis=1)
    fitted = naive_ols(days, design)
    columns = [(), (Indicator(0, 1),), *((Indicator(1, v),) for v in range(1, 7))]
    away: dict[str, list[np.ndarray]] = {"means": [], "shares": [], "differences": [], "fit": []}
    errors: dict[str, list[np.ndarray]] = {name: [] for name in away}
    for seed in range(RUNS // 4):
        own = randomised(mechanisms, [gender, sleep, days / 3.5 - 1], seed)
        tally = count_pairs(mechanisms[2], own.codes[2], mechanisms[1], own.codes[1])
        means = means_within([(mechanisms[2], mechanisms[1], tally)]).rescaled((0.0, 7.0))
        tally = count_pairs(mechanisms[0], own.codes[0], mechanisms[1], own.codes[1])
        groups = within(joint([(mechanisms[0], mechanisms[1], tally)]))
        apart = differences_between(groups)
        fit = linear([own], Number(2, 0.0, 7.0), columns)
        for name, value, true, error in (
            ("means", means.value[:, 0], truth, means.standard_error[:, 0]),
            ("shares", groups.value, shares, groups.standard_error),
            ("differences", apart.value[0], shares[1] - shares[0], apart.standard_error[0]),
            ("fit", fit.value, fitted, fit.standard_error),
        ):
            away[name].append((value - true).ravel())
            errors[name].append(error.ravel())
    assert hours == ["10+", "5", "6", "7", "8", "9", "<5"]
    for name in away:
        checked(away[name], errors[name])


def test_income_by_sex_and_education_of_adults() -> None:
    names = ["age", "workclass", "weight", "education", "years", "marital", "occupation"]
    names += ["relationship", "race", "sex", "gain", "loss", "hours", "country", "income"]
    table = pd.read_csv(
        DATA / "adult" / "adult.data.gz", names=names, skipinitialspace=True, dtype=str
    )
    sex, _ = codes(table["sex"])
    income, _ = codes(table["income"])
    degree = table["education"].isin(["Bachelors", "Masters", "Doctorate"]).to_numpy().astype(int)
    values = [income, sex, degree]
    columns = [(), (Indicator(1, 1),), (Indicator(2, 1),)]
    exact: list[Mechanism] = [KRR(2, 30.0) for _ in values]
    truth = logistic([randomised(exact, values, 0)], Indicator(0, 1), columns).value
    mechanisms: list[Mechanism] = [KRR(2, 1.5) for _ in values]
    away, errors = [], []
    for seed in range(RUNS):
        own = randomised(mechanisms, values, seed)
        fit = logistic([own], Indicator(0, 1), columns)
        away.append(fit.value - truth)
        errors.append(fit.standard_error)
        tally = count_pairs(mechanisms[0], own.codes[0], mechanisms[1], own.codes[1])
        assert independence([(mechanisms[0], mechanisms[1], tally)]).p_value < 1e-6
    checked(away, errors)


def test_affairs_by_the_rating_of_the_marriage() -> None:
    table = pd.read_csv(DATA / "fair-affairs" / "fair.csv.gz")
    affair = (table["affairs"] > 0).to_numpy().astype(int)
    rating, _ = codes(table["rate_marriage"])
    pairs = np.bincount(rating * 2 + affair, minlength=10).reshape(5, 2)
    shares = (pairs / pairs.sum(axis=1, keepdims=True))[:, 1]
    one, other = KRR(5, 2.5), KRR(2, 2.5)
    away, errors = [], []
    for seed in range(RUNS):
        own = randomised([one, other], [rating, affair], seed)
        groups = within(joint([(one, other, count_pairs(one, own.codes[0], other, own.codes[1]))]))
        known = groups.clear  # few rate their marriage as very poor
        away.append(np.where(known, groups.value[:, 1] - shares, 0.0)[1:])
        errors.append(groups.standard_error[1:, 1])
    checked(away, errors)


def test_students_of_whom_the_youngest_hardly_answer_are_weighted_to_the_school() -> None:
    table = pd.read_csv(DATA / "yrbss" / "yrbss.csv.gz", dtype=str)
    table = table[["grade", "gender", "text_while_driving_30d"]].dropna()
    table = table[table["grade"] != "other"]
    grade, grades = codes(table["grade"])
    gender, genders = codes(table["gender"])
    texting, answers = codes(table["text_while_driving_30d"])
    truth = np.bincount(texting) / len(table)
    groups = list(itertools.product(grades, genders))
    margins = [
        Margin((name,), [(value,) for value in values], np.bincount(own) / len(table))
        for name, own, values in (("grade", grade, grades), ("gender", gender, genders))
    ]
    willing = np.array([0.3, 0.5, 0.9, 0.15])[grade] * np.array([1.0, 0.6])[gender]
    assert (grades[3], genders[1]) == ("9", "male")
    mechanism = KRR(len(answers), 2.0)
    rng = np.random.default_rng(2)
    covered, raw, away = [], [], []
    for seed in range(RUNS):
        some = rng.choice(len(table), len(table))  # of a population that has these shares
        some = some[rng.random(some.size) < willing[some]]
        reports = mechanism.randomize_many(texting[some], SeededCoins(seed))
        place = grade[some] * len(genders) + gender[some]
        tallies = [mechanism.tally(reports[place == at]) for at in range(len(groups))]
        weights = rake(("grade", "gender"), groups, [tally.n for tally in tallies], margins)
        found = weighted([Cohorts([(mechanism, tally)]) for tally in tallies], weights).estimate
        low, high = found.interval()
        covered.append((low <= truth) & (truth <= high))
        away.append((found.value - truth) / found.standard_error)
        low, high = mechanism.estimate(mechanism.tally(reports)).interval()
        raw.append((low <= truth) & (truth <= high))
    assert np.mean(covered) > 0.9
    assert np.abs(np.mean(away, axis=0)).max() < 4.5 / RUNS**0.5
    assert np.mean(raw, axis=0)[answers.index("did not drive")] < 0.1
