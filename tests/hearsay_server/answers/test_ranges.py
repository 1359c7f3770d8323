"""Numbers in bins from the survey file to the answer: ranges, quantiles, the shares below."""

from functools import cache
from typing import Any

import numpy as np
import pytest
from command import hearsay as command
from serving import create

import hearsay.plans.plan
from hearsay import Analyst
from hearsay.asking import Answer, plots
from hearsay.plans.kinds import Binned
from hearsay.plans.plan import Plan
from hearsay.v1 import analyst_pb2
from hearsay_server.answers.distributions import distribution
from hearsay_server.answers.queries import Tallies, estimate
from hearsay_server.commands import codegen, codegen_typescript
from hearsay_server.demo import play
from hearsay_server.ingest.intake import Cohort
from hearsay_server.surveys import survey as surveys
from hearsay_server.surveys.explain import explain
from ldp import InvalidInput, Tally, Waves
from ldp.testing import SeededCoins
from support import device, rows_of

SURVEY = """
name = "people"
period = "P1D"
[levels]
{levels}
[[attributes]]
name = "minutes"
mechanism = "{mechanism}"
[attributes.numeric]
low = 0
high = 1440
{more}
"""

DAY = np.exp(-0.5 * ((np.arange(16) - 9) / 3) ** 2) + 0.1 * (np.arange(16) == 0)
DAY /= DAY.sum()


@cache
def planned(levels: str = "only = 2.0", mechanism: str = "auto", more: str = "bins = 16") -> Plan:
    text = SURVEY.format(levels=levels, mechanism=mechanism, more=more)
    return hearsay.plans.plan.parse(surveys.resolve(surveys.from_toml(text, "test.toml")))


def drawn(plan: Plan, sizes: list[int], seed: int) -> Tallies:
    generator, found = np.random.default_rng(seed), {}
    for (name, level), n in zip(plan.levels.items(), sizes, strict=True):
        mechanism = level.mechanisms["minutes"]
        assert isinstance(mechanism, Waves)
        chances = mechanism.channel_of_shifts.outputs(DAY)
        counts = generator.multinomial(n, chances / chances.sum())
        found[Cohort("people", plan.revision, "minutes", name, "d")] = Tally(n, counts)
    return found


def asked(plan: Plan, tallies: Tallies, *ranges: tuple[float, float], **choices: Any) -> Answer:
    wanted = [analyst_pb2.Range(low=low, high=high) for low, high in ranges]
    question = analyst_pb2.DistributionRequest(
        survey="people", attribute="minutes", ranges=wanted, **choices
    )
    return distribution(plan, question, tallies)


def test_a_survey_with_bins_has_waves() -> None:
    for name in ("auto", "waves"):
        (mechanism,) = planned(mechanism=name).levels["only"].mechanisms.values()
        assert isinstance(mechanism, Waves)
        assert mechanism.sides == (16,)


@pytest.mark.parametrize(
    ("mechanism", "more", "message"),
    [
        ("auto", "bins = 1", r"attributes\[0\] \(minutes\): bins must lie in 2\.\.256, got 1"),
        ("auto", "bins = 300", r"bins must lie in 2\.\.256, got 300"),
        ("auto", "bins = 16\nstep = 1", "give bins or a step, not both"),
        (
            "auto",
            "bins = 16\nsensitive = [{ low = 0, high = 10 }]",
            "give bins, or sensitive regions",
        ),
        ("hybrid", "bins = 16", "mechanism must be one of auto, waves, got 'hybrid'"),
        ("waves", "", "waves are for numbers in bins: declare them"),
        ("auto", "bins = 16\ncap = 2", "all protected alike"),
        ("auto", "bins = 16\nsensitive = [{low = 0, high = 60}]", "all protected alike"),
        ("auto", "bins = 16\nresolution = [{upto = 1440, within = 60}]", "all protected alike"),
        ("auto", "bins = -4", "bins"),
        ("auto", "bins = 2.5", "bins"),
    ],
)
def test_surveys_that_cannot_be_are_refused(mechanism: str, more: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        planned(mechanism=mechanism, more=more)


def test_memos_are_not_for_bins() -> None:
    text = SURVEY.format(levels="only = 1.0", mechanism="auto", more="bins = 16")
    text = text.replace("[attributes.numeric]", "memo = 1.0\n[attributes.numeric]")
    with pytest.raises(InvalidInput, match="memo is for categorical answers and strings only"):
        surveys.resolve(surveys.from_toml(text, "test.toml"))


def test_a_range_of_whole_bins_is_the_sum_of_their_shares() -> None:
    plan = planned()
    tallies = drawn(plan, [20_000], 1)
    answer = asked(plan, tallies, (450, 900), bins=16)
    (row,) = rows_of(answer, "ranges")
    inside = [each.estimate for each in rows_of(answer, "bins") if 450 <= each.left < 900]
    assert row.label == "450 to under 900"
    assert row.estimate == pytest.approx(sum(inside))
    assert row.low < DAY[5:10].sum() < row.high


def test_a_range_that_ends_within_a_bin_has_an_interval_for_any_spread_in_it() -> None:
    plan = planned()
    tallies = drawn(plan, [20_000], 2)
    inner, outer, row = rows_of(asked(plan, tallies, (450, 810), (360, 900), (400, 850)), "ranges")
    assert (row.low, row.high) == pytest.approx((inner.low, outer.high))
    assert inner.estimate < row.estimate < outer.estimate
    (alone,) = rows_of(asked(plan, tallies, (500, 510)), "ranges")
    assert alone.low == 0
    assert alone.estimate <= alone.high


def test_the_shares_below_rise_to_one_and_the_median_is_where_they_pass_a_half() -> None:
    plan = planned()
    answer = asked(plan, drawn(plan, [50_000], 3), cumulative=True, quantiles=[0.5])
    labels = [float(row.label) for row in rows_of(answer, "below")]
    assert labels == [90.0 * place for place in range(1, 16)]
    below = np.array([row.estimate for row in rows_of(answer, "below")])
    assert (np.diff(below) >= 0).all()
    (median,) = rows_of(answer, "quantiles")
    assert np.interp(median.estimate, labels, below) == pytest.approx(0.5)
    assert median.low <= median.estimate <= median.high
    assert {median.low % 90, median.high % 90} == {0.0}


def test_bins_are_estimated_one_by_one_as_frequencies() -> None:
    plan = planned("strict = 1.0\nopen = 2.0")
    question = analyst_pb2.EstimateRequest(survey="people", attribute="minutes")
    answer = estimate(plan, question, drawn(plan, [20_000, 20_000], 4))
    assert answer.statistic == "frequency"
    assert rows_of(answer)[0].label == "0 to under 90"
    assert sum(row.estimate for row in rows_of(answer)) == pytest.approx(1)
    missed = [
        not row.low <= share <= row.high for row, share in zip(rows_of(answer), DAY, strict=True)
    ]
    assert sum(missed) <= 3
    assert answer.figures["homogeneity"] > 1e-3


def test_bins_are_not_made_to_look_like_a_distribution_by_projection() -> None:
    plan = planned()
    question = analyst_pb2.EstimateRequest(
        survey="people", attribute="minutes", consistency="norm-sub"
    )
    with pytest.raises(InvalidInput, match="ask for the distribution"):
        estimate(plan, question, drawn(plan, [1000], 7))


@pytest.mark.parametrize(
    ("ranges", "choices", "message"),
    [
        ([(480, 480)], {}, "low < high"),
        ([(900, 480)], {}, "low < high"),
        ([(2000, 3000)], {}, "has no number of 0 to 1440"),
        ([], {"step": 1.0}, "was collected in bins"),
        ([], {"edges": [0, 100, 1440]}, "take 90 or 180"),
        ([], {"bins": 17}, "16 bins were collected, got 17"),
        ([(0, 90)] * 1025, {}, "there may be 1024 ranges, got 1025"),
    ],
)
def test_questions_without_an_answer_are_refused(
    ranges: list[tuple[float, float]], choices: dict[str, Any], message: str
) -> None:
    plan = planned()
    with pytest.raises(InvalidInput, match=message):
        asked(plan, drawn(plan, [1000], 5), *ranges, **choices)


def test_a_curve_has_ranges_without_intervals() -> None:
    plan = planned(mechanism="square_wave", more="")
    mechanism = plan.levels["only"].mechanisms["minutes"]
    values = np.random.default_rng(6).uniform(-1, 1, 5000)
    tally = mechanism.tally(mechanism.randomize_many(values, SeededCoins(1)))
    tallies = {Cohort("people", plan.revision, "minutes", "only", "d"): tally}
    answer = asked(plan, tallies, (0, 720), cumulative=True)
    (row,) = rows_of(answer, "ranges")
    assert row.estimate == pytest.approx(0.5, abs=0.1)
    assert row.low is None
    assert len(rows_of(answer, "below")) == 9
    with pytest.raises(InvalidInput, match="low < high"):
        asked(plan, tallies, (720, 720))


def test_explain_shows_how_well_ranges_and_the_median_will_be_known() -> None:
    text = SURVEY.format(levels="only = 1.0", mechanism="auto", more="bins = 16")
    found = explain(surveys.from_toml(text, "test.toml"), "test.toml", 10_000)
    mechanism = found.plan.levels["only"].mechanisms["minutes"]
    assert isinstance(mechanism, Waves)
    assert found.rows[0].error == pytest.approx(np.sqrt(mechanism.range_variance / 10_000))
    covariance = mechanism.covariance(np.full(16, 1 / 16), 10_000)
    worst = max(covariance[a:b, a:b].sum() for a in range(16) for b in range(a + 1, 17))
    median = 1440 * np.sqrt(covariance[:8, :8].sum())
    (line,) = found.ranges
    assert line.startswith(
        f"only, minutes: the share of a range has an error of {found.rows[0].error:.4f} on "
        f"average, {np.sqrt(worst):.4f} at worst; the median one of {median:.4g}."
    )
    assert found.protections == [
        "minutes: every bin from every other, by epsilon; where in a bin a number is never "
        "leaves the device"
    ]


def test_generated_modules_take_numbers() -> None:
    text = SURVEY.format(levels="only = 1.0", mechanism="auto", more="bins = 16\nclamp = true")
    plan = surveys.resolve(surveys.from_toml(text, "test.toml"))
    assert "minutes: float | None = None" in codegen.module(plan)
    assert "minutes: minutes (0 to 1440 in 16 bins, others move" in codegen.module(plan)
    typed = codegen_typescript.module(plan)
    assert "readonly minutes?: number" in typed
    assert "    minutes: [0, 1440],\n" in typed  # as the TypeScript SDK checks bins
    edged = text.replace("low = 0\nhigh = 1440\n", "").replace(
        "bins = 16", "edges = [-1, 0, 2.5, 9]"
    )
    assert edged != text
    typed = codegen_typescript.module(surveys.resolve(surveys.from_toml(edged, "test.toml")))
    assert "    minutes: [-1, 0, 2.5, 9],\n" in typed


@pytest.mark.parametrize(("n", "ranges"), [(20_000, 8), (100, 2)])
def test_the_demo_compares_as_many_ranges_as_the_reports_can_show(n: int, ranges: int) -> None:
    plan = planned("only = 1.0")
    tallies = drawn(plan, [n], 8)

    class Answering(Analyst):
        def __init__(self) -> None:
            pass

        def distribution(self, survey: str, attribute: str, **asked: Any) -> Answer:
            request = analyst_pb2.DistributionRequest(survey=survey, attribute=attribute, **asked)
            return distribution(plan, request, tallies)

    domain = plan.attributes["minutes"].domain
    assert isinstance(domain, Binned)
    given = [90.0 * place for place in range(16) for _ in range(place + 1)]
    found = play._ask_ranges(Answering(), "people", "minutes", domain, given)
    assert len(found) >= ranges
    assert sum(each.truth for each in found) == pytest.approx(1)
    assert found[0].label.startswith("0 to under")


def test_from_devices_to_an_analyst(address: str) -> None:
    create(address, SURVEY.format(levels="only = 8.0", mechanism="auto", more="bins = 16"))
    minutes = [0, 37, 89.99, 90, 480, 481.5, 1439, 1440] * 2
    for number, minute in enumerate(minutes):
        with device(address, "people", level="only", coins=SeededCoins(number)) as client:
            assert client.record(minutes=minute).taken == ("minutes",)
            with pytest.raises(InvalidInput, match=r"minutes must lie in \[0, 1440\]"):
                client.record(minutes=2000)
    with Analyst(address) as analyst:
        share = analyst.between("people", "minutes", 0, 90).to_frame().iloc[0]
        assert share["low"] <= 3 / 8 <= share["high"]
        assert analyst.quantile("people", "minutes", 0.9).to_frame().index.tolist() == [0.9]
        shares_below = analyst.cdf("people", "minutes")
        below = shares_below.to_frame()
        assert below.index[0] == 90.0
        assert below["estimate"].iloc[0] == pytest.approx(share["estimate"])
        assert analyst.attributes("people").loc["minutes", "bins"] == 16
        answer = analyst.distribution("people", "minutes", bins=2)
        histogram = answer.to_frame()
        assert histogram.attrs["step"] is None
    ask = ("ask", "between", "people", "minutes", "--target", address)
    assert plots.figure(shares_below).axes[0].get_ylabel() == "share below, with 95% intervals"
    assert "0 to under 90" in command(*ask, 0, 90).stdout
    refused = command(*ask, 90, 90)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "a range has low < high" in refused.stderr


def coverage(plan: Plan, sizes: list[int], runs: int) -> np.ndarray:
    """Return how often the intervals of ranges, of shares below and of quantiles cover."""
    ranges = [(0, 90), (180, 810), (450, 900), (900, 1440)]
    truths = [DAY[low // 90 : high // 90].sum() for low, high in ranges]
    below = np.cumsum(DAY)
    hits = np.zeros((runs, 3))
    for run_ in range(runs):
        answer = asked(
            plan, drawn(plan, sizes, run_), *ranges, cumulative=True, quantiles=[0.25, 0.5, 0.9]
        )
        rows = zip(rows_of(answer, "ranges"), truths, strict=True)
        hits[run_, 0] = np.mean([row.low <= truth <= row.high for row, truth in rows])
        rows = zip(rows_of(answer, "below"), below[:-1], strict=True)
        hits[run_, 1] = np.mean([row.low <= truth <= row.high for row, truth in rows])
        # The quantile lies within a bin: the interval must reach it wherever it is in there.
        bins = [
            int(np.searchsorted(below, float(row.label))) for row in rows_of(answer, "quantiles")
        ]
        hits[run_, 2] = np.mean(
            [
                row.low <= 90 * place and 90 * (place + 1) <= row.high
                for row, place in zip(rows_of(answer, "quantiles"), bins, strict=True)
            ]
        )
    return hits.mean(axis=0)


def test_intervals_cover() -> None:
    ranges, below, quantiles = coverage(planned(), [3000], 60)
    assert min(ranges, below, quantiles) >= 0.9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("levels", "sizes"),
    [("only = 1.0", [5000]), ("only = 4.0", [600]), ("strict = 0.5\nopen = 2.0", [6000, 2000])],
)
def test_intervals_cover_as_often_as_they_say(levels: str, sizes: list[int]) -> None:
    """95% within 2 points, of ranges and of the shares below; quantiles no less than that."""
    ranges, below, quantiles = coverage(planned(levels), sizes, 200)
    assert ranges == pytest.approx(0.95, abs=0.02)
    assert below == pytest.approx(0.95, abs=0.02)
    assert quantiles >= 0.94
