"""Changes over time: their errors without and with panels, against simulated people."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from ldp import KRR, InvalidInput, Tally
from ldp.estimating.change import (
    Changes,
    Series,
    breaks,
    candidates,
    contrasts,
    difference,
    search_p_value,
    series,
    trend,
)
from ldp.estimating.sums import Summed
from ldp.planning.sizes import detectable_change, two_wave_power, two_wave_sample_size

Floats = NDArray[np.float64]

PANELS = 16


def tally(*counts: int) -> Tally:
    return Tally(sum(counts), np.array(counts))


def lives(rng: np.random.Generator, n: int, shares: Floats, stay: float) -> NDArray[np.bool_]:
    """Return who says yes in each period, shape (periods, n): answers are kept with chance `stay`,
    else drawn so that the shares are as given."""
    told = np.empty((shares.size, n), dtype=bool)
    told[0] = rng.random(n) < shares[0]
    for t in range(1, shares.size):
        anew = (shares[t] - stay * shares[t - 1]) / (1 - stay)
        told[t] = np.where(rng.random(n) < stay, told[t - 1], rng.random(n) < anew)
    return told


def collected(
    rng: np.random.Generator, told: NDArray[np.bool_], epsilon: float, memo: bool, *, same: bool
) -> tuple[list[Any], list[list[Any]]]:
    """Return the tallies of periods, and those of each panel; with `same` people keep theirs."""
    mechanism = KRR(2, epsilon)
    matrix = mechanism.matrix()
    assert matrix is not None
    chance = np.where(told, matrix[1, 1], matrix[0, 1])
    drawn = rng.random(told.shape)
    if memo:  # one memo for each of the two answers
        drawn = np.where(told, *rng.random((2, told.shape[1])))
    codes = drawn < chance
    panel = rng.integers(PANELS, size=told.shape)
    if same:
        panel = np.broadcast_to(panel[0], told.shape)
    each = []
    for own, code in zip(panel, codes, strict=True):
        n, yes = np.bincount(own, minlength=PANELS), np.bincount(own[code], minlength=PANELS)
        each.append([{"all": (mechanism, tally(*pair))} for pair in zip(n - yes, yes, strict=True)])
    whole = [
        {"all": (mechanism, Tally(code.size, np.array([(~code).sum(), code.sum()])))}
        for code in codes
    ]
    return whole, [list(own) for own in zip(*each, strict=True)]


def of_two(found: Series) -> Series:
    """Return the first and the last period of a series."""
    ends = [0, -1]
    each = {
        name: getattr(found, name)[ends] for name in ("value", "variance", "truths", "n", "sample")
    }
    return replace(found, **each, scores=None if found.scores is None else found.scores[:, ends])


# --- the formulas ------------------------------------------------------------------------------


def test_the_published_errors_of_a_difference_are_those_of_the_formulas() -> None:
    """n = 5000, epsilon 1, .20 to .25 in 8 periods, stay .9: fresh .02018, memos .01054."""
    n, f, g, stay = 5000, 0.2, 0.25, 0.9**7
    p = math.e / (math.e + 1)
    q = 1 - p
    both = stay * f * (1 - f) + f * g  # answers that were drawn anew are independent
    s, r = f * p + (1 - f) * q, g * p + (1 - g) * q
    fresh = (s * (1 - s) + r * (1 - r) - 2 * (p - q) ** 2 * (both - f * g)) / (p - q) ** 2
    changed = f + g - 2 * both
    memo = (changed * (p * (1 - q) + q * (1 - p)) - ((p - q) * (g - f)) ** 2) / (p - q) ** 2
    assert math.sqrt(fresh / n) == pytest.approx(0.02018, abs=2e-5)
    assert math.sqrt(memo / n) == pytest.approx(0.01054, abs=3e-5)


def most_variance(values: Floats, w: Floats, n: int) -> float:
    """Return the largest variance of w . x over all people with these shares, by a linear program:
    x takes 2^T values, and their distribution is whatever it takes."""
    from scipy.optimize import linprog

    lives = np.array(list(product([0, 1], repeat=values.size)))
    told = lives @ w
    found = linprog(
        -(told**2),
        A_eq=np.vstack([lives.T, np.ones(len(lives))]),
        b_eq=np.append(values, 1),
        bounds=(0, 1),
    )
    return float((-found.fun - (values @ w) ** 2) / n)


@pytest.mark.parametrize(
    ("shares", "weights"),
    [
        ([0.2, 0.25], [-1, 1]),
        ([0.8, 0.7], [-1, 1]),
        ([0.3, 0.6], [-1, 1]),
        ([0.2, 0.3, 0.25, 0.4], [-0.3, -0.1, 0.1, 0.3]),
        ([0.9, 0.7, 0.2], [-1, 0.5, 0.5]),
    ],
)
def test_no_people_make_a_larger_variance_than_is_allowed_for(
    shares: Sequence[float], weights: Sequence[float]
) -> None:
    """The noise is next to none, so that people's truths are all there is."""
    n = 10**9
    mechanism = KRR(2, 30.0)
    periods = [{"all": (mechanism, tally(n - round(n * f), round(n * f)))} for f in shares]
    found = contrasts(series(periods), [weights])
    most = most_variance(np.array(shares), np.array(weights), n)
    assert found.standard_error[0, 1] ** 2 >= most * (1 - 1e-6)
    if len(shares) == 2:
        own = series(periods).variance[:, 1].sum()
        both = 2 / n * min(math.prod(shares), math.prod(1 - f for f in shares))
        assert found.standard_error[0, 1] ** 2 == pytest.approx(own + both, rel=1e-6)


@pytest.mark.parametrize("swapped", [False, True])
def test_people_who_come_back_may_be_of_another_kind(swapped: bool) -> None:
    """Half come back: all who ever said yes, of whom half did, and each now says the other."""
    mechanism, n, half = KRR(2, 30.0), 2 * 10**9, 10**9
    periods = [
        {"all": (mechanism, tally(n - half // 2, half // 2))},
        {"all": (mechanism, tally(half // 2, half // 2))},
    ]
    found = difference(series(periods[::-1] if swapped else periods))
    covariance = -0.25 / n
    true = 0.25 * 0.75 / n + 0.25 / half - 2 * covariance
    assert found.standard_error[1] ** 2 >= true * (1 - 1e-6)


@pytest.mark.parametrize(
    ("n", "epsilon", "f", "g"), [(50, 6.0, 0.0, 0.03), (200, 6.0, 0.0, 0.01), (200, 1.0, 0.1, 0.3)]
)
def test_differences_of_rare_values_are_covered(n: int, epsilon: float, f: float, g: float) -> None:
    """By the chances of all counts that matter; the normal interval covers 81% of the first."""
    mechanism = KRR(2, epsilon)
    matrix = mechanism.matrix()
    assert matrix is not None
    p = float(matrix[1, 1])
    chances = [binom.pmf(np.arange(n + 1), n, x * p + (1 - x) * (1 - p)) for x in (f, g)]
    seen = [np.flatnonzero(chance > 3e-3).tolist() for chance in chances]
    covered = 0.0
    for y, z in product(*seen):
        both = [{"all": (mechanism, tally(n - each, each))} for each in (y, z)]
        low, high = difference(series(both)).interval()
        covered += chances[0][y] * chances[1][z] * bool(low[1] <= g - f <= high[1])
    total = math.prod(chance[own].sum() for chance, own in zip(chances, seen, strict=True))
    assert covered / total > 0.945


def test_panels_of_one_size_have_the_error_of_the_mean_of_their_contrasts() -> None:
    rng = np.random.default_rng(3)
    mechanism = KRR(2, 1.0)
    yes = rng.integers(60, 90, size=(PANELS, 3))
    panels = [[{"all": (mechanism, tally(200 - int(y), int(y)))} for y in own] for own in yes]
    whole = [{"all": (mechanism, tally(200 * PANELS - int(y), int(y)))} for y in yes.sum(axis=0)]
    found = contrasts(series(whole, panels), [[-1, 0, 1], [0.5, -1, 0.5]])
    for row, w in enumerate(([-1, 0, 1], [0.5, -1, 0.5])):
        each = [
            sum(a * mechanism.debias(part["all"][1]) for a, part in zip(w, own, strict=True))
            for own in panels
        ]
        assert found.value[row] == pytest.approx(np.mean(each, axis=0))
        assert found.standard_error[row] == pytest.approx(np.std(each, axis=0, ddof=1) / 4)
    assert found.degrees == 15


def test_too_few_panels_or_reports_leave_the_largest_error() -> None:
    mechanism = KRR(2, 1.0)
    panels = [[{"all": (mechanism, tally(60, 40))}] * 2 for _ in range(3)]
    whole = [{"all": (mechanism, tally(180, 120))}] * 2
    assert series(whole, panels).scores is None
    small = [[{"all": (mechanism, tally(2, 1))}] * 2 for _ in range(16)]
    assert series([{"all": (mechanism, tally(32, 16))}] * 2, small).scores is None
    lacking = [*panels, [{}, {}], [{"all": (mechanism, tally(40, 60))}, {}]]
    scores = series([{"all": (mechanism, tally(220, 180))}, whole[1]], lacking).scores
    assert scores is not None
    assert scores.shape[0] == 4  # a panel without any report is none
    assert (scores[3, 1] == 0).all()  # a panel without reports in a period adds nothing to it


# --- levels ------------------------------------------------------------------------------------


def test_a_change_of_the_mix_of_levels_is_no_change() -> None:
    """One level says yes with .2, another with .6, in both periods; their shares are swapped."""
    strict, loose = KRR(2, 8.0), KRR(2, 9.0)
    first = {"strict": (strict, tally(6400, 1600)), "loose": (loose, tally(800, 1200))}
    second = {"strict": (strict, tally(1600, 400)), "loose": (loose, tally(3200, 4800))}
    found = series([first, second])
    changed = difference(found)
    assert changed.value == pytest.approx([0, 0], abs=1e-9)
    assert (changed.p_value > 0.99).all()
    assert changed.first[1] == pytest.approx(0.4, abs=0.001)  # half of either, in both periods
    assert changed.mix is not None
    assert changed.mix[1] == pytest.approx(0.52 - 0.28, abs=0.001)


def test_periods_that_lack_a_level_are_of_the_people_who_answered() -> None:
    strict, loose = KRR(2, 8.0), KRR(2, 9.0)
    first = {"strict": (strict, tally(600, 400)), "loose": (loose, tally(900, 100))}
    found = series([first, {"strict": (strict, tally(600, 400))}])
    assert found.mix is None
    assert found.value[:, 1] == pytest.approx([0.25, 0.4], abs=0.001)
    assert found.people


def test_what_is_known_without_error_did_not_change() -> None:
    mechanism = Summed(KRR(2, 1.0), [[1, 1]])
    periods = [{"all": (mechanism, tally(40 + t, 60))} for t in range(6)]
    for found in (trend(series(periods), range(6)), breaks(series(periods))):
        assert found.value == pytest.approx([0], abs=1e-9)
        assert found.p_value == pytest.approx([1])
    assert np.ravel(difference(series(periods[:2])).interval()) == pytest.approx([0, 0], abs=1e-9)


def test_sums_have_the_errors_of_their_covariance() -> None:
    mechanism = KRR(4, 1.0)
    summed = Summed(mechanism, [[1, 1, 1, 1], [1, 1, 0, 0]])
    own = tally(300, 200, 300, 200)
    found = series([{"all": (summed, own)}, {"all": (summed, tally(200, 200, 300, 300))}])
    assert found.value[:, 0] == pytest.approx([1, 1])
    assert found.variance[:, 0] == pytest.approx([0, 0], abs=1e-12)
    apart = series([{"all": (mechanism, own)}] * 2)
    assert found.variance[0, 1] < 0.9 * apart.variance[0, :2].sum()


@pytest.mark.slow
@pytest.mark.parametrize("memo", [False, True], ids=["fresh", "memo"])
def test_all_values_are_tested_at_once_over_panels(memo: bool) -> None:
    """Five values, 16 panels: nothing changed is rejected in 5% of cases, and a change is found."""
    mechanism, n, runs = KRR(5, 1.5), 1600, 100
    matrix = mechanism.matrix()
    assert matrix is not None
    rng = np.random.default_rng(8)
    rejected = []
    for shares in ([0.2] * 5, [0.32, 0.2, 0.2, 0.2, 0.08]):
        found = []
        for _ in range(runs):
            first = rng.integers(5, size=n)
            second = np.where(rng.random(n) < 0.5, rng.choice(5, n, p=shares), first)
            lies = rng.random((2, n))
            memos = np.array([rng.choice(5, n, p=row) for row in matrix])
            panel = rng.integers(PANELS, size=n)
            counts = []
            for told, lie in zip((first, second), lies, strict=True):
                own = matrix.cumsum(axis=1)[told]
                code = memos[told, np.arange(n)] if memo else (lie[:, None] > own).sum(axis=1)
                counts.append(np.bincount(5 * panel + code, minlength=5 * PANELS).reshape(-1, 5))
            panels = [
                [{"all": (mechanism, Tally(int(c[p].sum()), c[p]))} for c in counts]
                for p in range(PANELS)
            ]
            whole = [{"all": (mechanism, Tally(n, c.sum(axis=0)))} for c in counts]
            found.append(difference(series(whole, panels)).any_p_value <= 0.05)
        rejected.append(np.mean(found))
    assert rejected[0] <= 0.05 + 3 * math.sqrt(0.0475 / runs)
    assert rejected[1] > 0.15 + 0.3 * memo


@pytest.mark.parametrize("rows", [np.eye(6)[:3], np.eye(6)[:2], np.eye(6)])
def test_a_change_of_the_last_row_alone_is_seen(rows: Floats) -> None:
    mechanism, n = KRR(6, 3.0), 16000
    last = len(rows) - 1
    matrix, rng = mechanism.matrix(), np.random.default_rng(0)
    assert matrix is not None
    periods = []
    for moved in (-0.05, 0.05):
        shares = np.full(6, 1 / 6)
        shares[[last, last - 3]] += moved, -moved
        periods.append(rng.multinomial(n // PANELS, shares @ matrix, size=PANELS))
    estimator = Summed(mechanism, rows)
    panels = [
        [{"all": (estimator, Tally(n // PANELS, own[p]))} for own in periods] for p in range(PANELS)
    ]
    whole = [{"all": (estimator, Tally(n, own.sum(axis=0)))} for own in periods]
    found = difference(series(whole, panels))
    assert found.adjusted_p_value[last] < 1e-4
    assert found.any_p_value < 0.01


# --- breaks ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("periods", "published"), [(8, 2.595), (30, 2.819)])
def test_the_critical_values_are_the_published_ones(periods: int, published: float) -> None:
    """Published from simulations; the integral says 2.587 and 2.804."""
    at = candidates(periods) / periods
    z = np.linspace(2, 4, 2001)
    critical = z[np.abs(search_p_value(z, at) - 0.05).argmin()]
    assert critical == pytest.approx(published, rel=0.006)
    rng = np.random.default_rng(1)
    walks = rng.standard_normal((100_000, periods)).cumsum(axis=1)
    tau = candidates(periods)
    bridge = walks[:, tau - 1] - tau / periods * walks[:, -1:]
    seen = np.abs(bridge / np.sqrt(tau * (periods - tau) / periods)).max(axis=1)
    assert np.mean(seen > critical) == pytest.approx(0.05, abs=0.0021)


def test_p_values_of_a_search_fall_and_end_in_those_of_a_sum() -> None:
    z = np.linspace(0, 12, 400)
    found = search_p_value(z, [0.2, 0.4, 0.6, 0.8])
    assert (np.diff(found) <= 0).all()
    assert found[0] == 1
    one = search_p_value([1.0, 2.0, 3.0], [0.5])
    assert one == pytest.approx([0.3173, 0.0455, 0.0027], abs=2e-4)
    with pytest.raises(InvalidInput, match="shares of information"):
        search_p_value([1.0], [0.5, 0.5])


def test_a_break_is_found_where_it_is() -> None:
    rng = np.random.default_rng(2)
    shares = np.repeat([0.2, 0.4], [7, 3])
    whole, _ = collected(rng, rng.random((10, 4000)) < shares[:, None], 2.0, False, same=False)
    found = breaks(series(whole))
    assert found.place is not None
    assert found.place[1] == 7
    assert found.p_value[1] < 1e-6
    assert found.first[1] == pytest.approx(0.2, abs=0.02)
    assert found.second[1] == pytest.approx(0.4, abs=0.02)


# --- people ------------------------------------------------------------------------------------


def test_a_trend_is_the_line_of_least_squares() -> None:
    mechanism = KRR(2, 2.0)
    yes = [300, 340, 330, 420]
    found = series([{"all": (mechanism, tally(1000 - y, y))} for y in yes])
    times = np.array([0, 1, 2, 5])
    line = trend(found, times)
    slope, height = np.polyfit(times, found.value[:, 1], 1)
    assert line.value[1] == pytest.approx(slope, rel=0.02)  # but for the variances' differences
    assert line.second[1] - line.first[1] == pytest.approx(5 * line.value[1])
    assert line.first[1] == pytest.approx(height, abs=0.01)


CASES = {
    "fresh": (0.9, False, True),
    "memos": (0.9, True, True),
    "memos of answers that stay": (0.98, True, True),
    "different people": (0.9, False, False),
}


@pytest.mark.slow
@pytest.mark.parametrize(("stay", "memo", "same"), CASES.values(), ids=CASES)
def test_intervals_cover_whatever_people_do(stay: float, memo: bool, same: bool) -> None:
    """n = 5000, epsilon 1, .20 to .25 over 8 periods: without panels .945 to 1, with panels .93 to
    .97, for differences and slopes."""
    n, runs = 5000, 200
    shares = np.linspace(0.2, 0.25, 8)
    rng = np.random.default_rng(1)
    covered: dict[str, list[bool]] = {}
    widths: dict[str, list[float]] = {}
    for _ in range(runs):
        told = lives(rng, n, shares, stay) if same else rng.random((8, n)) < shares[:, None]
        whole, panels = collected(rng, told, 1.0, memo, same=same)
        for name, found in (
            ("largest", series(whole, codes=memo)),
            ("panels", series(whole, panels, codes=memo)),
        ):
            asked: tuple[tuple[str, Changes, float], ...] = (
                ("difference", difference(of_two(found)), 0.05),
                ("slope", trend(found, range(8)), 0.05 / 7),
            )
            for what, changed, truth in asked:
                low, high = changed.interval()
                key = f"{name} {what}"
                covered.setdefault(key, []).append(bool(low[1] <= truth <= high[1]))
                widths.setdefault(key, []).append(float(changed.standard_error[1]))
    for key, seen in covered.items():
        slack = 3 * math.sqrt(0.95 * 0.05 / runs)
        assert np.mean(seen) >= 0.95 - slack
        if key.startswith("panels"):
            assert np.mean(seen) <= 0.95 + slack
    if memo:  # half as wide with panels; a third where answers stay
        ratio = np.mean(widths["panels difference"]) / np.mean(widths["largest difference"])
        assert ratio < (0.55 if stay == 0.9 else 0.35)


@pytest.mark.slow
@pytest.mark.parametrize("stay", [0.0, 0.9])
@pytest.mark.parametrize("memo", [False, True], ids=["fresh", "memo"])
def test_breaks_are_rarely_found_where_nothing_changes(memo: bool, stay: float) -> None:
    runs, rng = 120, np.random.default_rng(4)
    found: list[tuple[bool, bool]] = []
    for _ in range(runs):
        told = lives(rng, 2000, np.full(10, 0.3), stay)
        whole, panels = collected(rng, told, 1.0, memo, same=True)
        both = breaks(series(whole, codes=memo)), breaks(series(whole, panels, codes=memo))
        found.append((both[0].p_value[1] <= 0.05, both[1].p_value[1] <= 0.05))
    assert (np.mean(found, axis=0) <= 0.05 + 3 * math.sqrt(0.0475 / runs)).all()


# --- bad input ---------------------------------------------------------------------------------


def test_what_cannot_be_told_is_refused() -> None:
    mechanism = KRR(2, 1.0)
    two = series([{"all": (mechanism, tally(50, 50))}] * 2)
    with pytest.raises(InvalidInput, match="each period must have reports"):
        series([{"all": (mechanism, tally(50, 50))}, {}])
    with pytest.raises(InvalidInput, match="different parameters"):
        series([{"all": (mechanism, tally(50, 50))}, {"all": (KRR(3, 1.0), tally(5, 5, 5))}])
    with pytest.raises(InvalidInput, match="must sum to zero"):
        contrasts(two, [[1, 1]])
    with pytest.raises(InvalidInput, match=r"shape \(contrasts, 2\)"):
        contrasts(two, [[1, -1, 0]])
    with pytest.raises(InvalidInput, match="three periods at least, got 2"):
        trend(two, [0, 1])
    with pytest.raises(InvalidInput, match="times are 2 rising numbers"):
        trend(two, [1, 0])
    with pytest.raises(InvalidInput, match="five periods at least, got 2"):
        breaks(two)
    with pytest.raises(InvalidInput, match="confidence must lie strictly"):
        difference(two).interval(1.0)
    with pytest.raises(InvalidInput, match="a difference is of two periods, got 3"):
        difference(series([{"all": (mechanism, tally(50, 50))}] * 3))


# --- plans -------------------------------------------------------------------------------------


def test_rare_values_have_the_planned_power() -> None:
    """The test pools both periods, which is more than the first one's own variance."""
    mechanism, runs = KRR(2, 6.0), 400
    n = two_wave_sample_size(mechanism, 0.0, 0.02, same_people=True)
    matrix = mechanism.matrix()
    assert matrix is not None
    p = float(matrix[1, 1])
    counts = np.random.default_rng(1).binomial(n, [1 - p, 0.02 * p + 0.98 * (1 - p)], (runs, 2))
    found = [
        difference(series([{"all": (mechanism, tally(n - y, y))} for y in own])).p_value[1]
        for own in counts.tolist()
    ]
    assert np.mean(np.array(found) <= 0.05) >= 0.82


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
@pytest.mark.parametrize("panels", [0, PANELS])
def test_the_power_is_the_planned_one(epsilon: float, panels: int) -> None:
    """`plan --change` says how many reports show a change with probability .8: so many do, and more
    where the same people keep their answers."""
    change, runs = 0.1, 250
    mechanism = KRR(2, epsilon)
    options: Any = {"panels": panels} if panels else {"same_people": True}
    n = two_wave_sample_size(mechanism, 0.3, change, **options)
    assert two_wave_power(mechanism, 0.3, change, n, **options) == pytest.approx(0.8, abs=0.002)
    assert detectable_change(mechanism, 0.3, n, **options) == pytest.approx(change, rel=0.001)
    rng = np.random.default_rng(3)
    shares = np.array([0.3, 0.3 + change])
    seen = {}
    for keep in (True, False):
        found = []
        for _ in range(runs):
            first = rng.random(n) < 0.3
            if keep:
                second = first | (rng.random(n) < change / 0.7)
            elif panels:
                second = rng.random(n) < shares[1]
            else:  # whoever says yes says no later, as far as the shares permit
                second = ~first & (rng.random(n) < shares[1] / 0.7)
            whole, own = collected(rng, np.array([first, second]), epsilon, False, same=True)
            made = series(whole, own if panels else ())
            found.append(difference(made).p_value[1] <= 0.05)
        seen[keep] = np.mean(found)
    slack = 3 * math.sqrt(0.16 / runs)
    assert seen[False] == pytest.approx(0.8, abs=slack + 0.02)  # planned at the share before
    assert seen[True] >= 0.8 - slack


# --- real people -------------------------------------------------------------------------------

WAGES = Path(__file__).resolve().parents[3] / "shared" / "data" / "wages" / "gss_wages.csv.gz"


@pytest.mark.slow
@pytest.mark.skipif(not WAGES.exists(), reason=f"{WAGES} is not there")
def test_slopes_of_the_general_social_survey_are_covered() -> None:
    """What 34,579 women did in 30 years; the slopes of their answers are the truth."""
    import pandas as pd

    people = pd.read_csv(WAGES)
    women = people[people["gender"] == "Female"].dropna(subset=["wrkstat"])
    values = ["Full-Time", "Part-Time", "Housekeeper", "Retired"]
    work = women["wrkstat"].map({name: code for code, name in enumerate(values)}).fillna(4)
    years = [own.to_numpy(dtype=int) for _, own in work.groupby(women["year"])]
    mechanism = KRR(5, 2.0)
    matrix = mechanism.matrix()
    assert matrix is not None
    truth = series(
        [{"all": (KRR(5, 30.0), Tally(own.size, np.bincount(own, minlength=5)))} for own in years]
    )
    expected = trend(truth, range(30)).value
    rng = np.random.default_rng(5)
    covered: list[list[bool]] = []
    for _ in range(15):
        panels: list[list[Any]] = [[] for _ in range(PANELS)]
        whole = []
        for own in years:
            code = (rng.random((own.size, 1)) > matrix.cumsum(axis=1)[own]).sum(axis=1)
            panel = rng.integers(PANELS, size=own.size)
            counts = np.bincount(5 * panel + code, minlength=5 * PANELS).reshape(PANELS, 5)
            whole.append({"all": (mechanism, Tally(own.size, counts.sum(axis=0)))})
            for number, count in enumerate(counts):
                panels[number].append({"all": (mechanism, Tally(int(count.sum()), count))})
        for parts in ((), panels):
            low, high = trend(series(whole, parts), range(30)).interval()
            covered.append([bool(x) for x in (low <= expected) & (expected <= high)])
    assert np.mean(covered[::2]) >= 0.95  # the largest errors, and then those by panels
    assert np.mean(covered[1::2]) == pytest.approx(0.95, abs=0.08)
    assert expected[2] == pytest.approx(-0.012, abs=0.0005)
