"""What an analyst asks, of a server that holds three days of reports."""

import csv
import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest
from collected import DAYS, batch, register
from command import hearsay
from serving import serving, submit

from hearsay import Analyst
from hearsay.asking import plots
from hearsay.asking.analyst import Selection
from hearsay.asking.views.notes import of_estimates
from hearsay.plans.plan import Plan, parse
from hearsay.v1 import analyst_pb2, collector_pb2
from hearsay_server.answers import queries
from hearsay_server.ingest.intake import Cohort
from hearsay_server.serving.analyses import Analyses
from hearsay_server.surveys.survey import from_toml, resolve
from ldp import InvalidInput, Tally
from ldp.assurance.poisoning import largest_shift
from ldp.core.estimation import Cohorts
from ldp.core.repeated import Repeats
from ldp.errors import NotReady
from ldp.estimating.consistency import make_consistent
from ldp.estimating.distribution import pooled
from ldp.estimating.recovery import ldp_recover
from ldp.estimating.strata import stratified_points
from ldp.testing import SeededCoins
from support import rows_of

VALUES = [f"v{i}" for i in range(10)]
TOML = f"""
name = "asked"
period = "P1D"
[levels]
strict = 3.0
open = 12.0
[[attributes]]
name = "colour"
mechanism = "oue"
[attributes.categorical]
values = {VALUES}
[[attributes]]
name = "shape"
mechanism = "krr"
[attributes.categorical]
values = {VALUES}
[[attributes]]
name = "income"
mechanism = "square_wave"
[attributes.numeric]
low = 0
high = 1000
[[attributes]]
name = "height"
mechanism = "onebit"
[attributes.numeric]
low = 100
high = 200
"""
FREQUENCIES = np.arange(10, 0, -1) / 55
ROWS = 2000


def people(rows: int, seed: int) -> dict[str, Any]:
    source = np.random.default_rng(seed)
    return {
        "colour": source.choice(10, rows, p=FREQUENCIES),
        "shape": source.choice(10, rows, p=FREQUENCIES),
        "income": source.beta(2, 4, rows) * 2 - 1,
        "height": source.beta(5, 5, rows) * 2 - 1,
    }


class Collected:
    def __init__(self, address: str, analyst: Analyst) -> None:
        self.address = address
        self.analyst = analyst
        _, self.plan = register(address, TOML)
        self.batches = [
            batch(self.plan, level, day, people(ROWS, seed), 10 * seed)
            for seed, (level, day) in enumerate(
                (level, day) for level in self.plan.levels for day in DAYS
            )
        ]
        submit(address, *self.batches)

    def cohorts(self, attribute: str, level: str = "", *days: str) -> list[Any]:
        """The mechanisms with the tallies of what was submitted, by level."""
        found = []
        for name in [level] if level else list(self.plan.levels):
            mechanism = self.plan.levels[name].mechanisms[attribute]
            tally = Tally.empty(mechanism.tally_size)
            for sent in self.batches:
                if sent.period in (days or DAYS):
                    tally += sum(
                        (tallied(self.plan, column) for column in sent.columns
                         if (column.attribute, column.level) == (attribute, name)),
                        start=Tally.empty(mechanism.tally_size),
                    )  # fmt: skip
            found.append((mechanism, tally))
        return found


def tallied(plan: Plan, column: collector_pb2.Column) -> Tally:
    mechanism = plan.levels[column.level].mechanisms[column.attribute]
    count = len(column.codes) // mechanism.code_bytes
    return mechanism.tally(mechanism.decode(column.codes, count))


@pytest.fixture(scope="module")
def analyst(address: str) -> Iterator[Analyst]:
    with Analyst(address) as found:
        yield found


@pytest.fixture(scope="module")
def collected(address: str, analyst: Analyst) -> Collected:
    return Collected(address, analyst)


def command(collected: Collected, *arguments: object, view: str = "query") -> CompletedProcess[str]:
    asked = (*view.split(), "asked", *arguments, "--target", collected.address)
    return hearsay(*asked, COLUMNS="200")


def asked(collected: Collected, *arguments: object, view: str = "query") -> str:
    done = command(collected, *arguments, view=view)
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- ranges and groups -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "last", "days"),
    [(1, 2, DAYS[1:]), (None, 1, DAYS[:2]), (1, None, DAYS[1:]), (1, 1, DAYS[1:2])],
)
def test_a_range_of_periods_counts_its_ends(
    collected: Collected, first: int | None, last: int | None, days: list[str]
) -> None:
    answer = collected.analyst.estimate(
        "asked",
        "shape",
        levels=["open"],
        first_period="" if first is None else DAYS[first],
        last_period="" if last is None else DAYS[last],
    )
    assert sorted({cohort.period for cohort in answer.cohorts}) == days
    ((mechanism, tally),) = collected.cohorts("shape", "open", *days)
    assert [row.estimate for row in rows_of(answer)] == pytest.approx(mechanism.debias(tally))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"consistency": "tidy"}, "unknown method 'tidy'"),
        ({"forged": 3, "method": "mle"}, "known for the methods inverse_variance and scalar"),
        ({"recover": 0.1}, "recovery is for the reports of one frequency oracle, got krr, krr"),
        ({"recover": 0.1, "consistency": "norm"}, "a consistency or for recovery, not both"),
        ({"recover": -1.0, "levels": ["open"]}, "share of forged reports must be >= 0"),
    ],
    ids=lambda value: "" if isinstance(value, str) else "-".join(value),
)
def test_what_cannot_be_asked_is_refused(
    collected: Collected, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        collected.analyst.estimate("asked", "shape", **options)
    assert message in str(refused.value)


ASKED: dict[str, Callable[[Analyst, Selection], object]] = {
    "estimate": lambda analyst, chosen: analyst.estimate("asked", "colour", **chosen),
    "by": lambda analyst, chosen: analyst.by_level("asked", "colour", **chosen),
    "watch": lambda analyst, chosen: next(analyst.watch("asked", "colour", **chosen)),
    "distribution": lambda analyst, chosen: analyst.distribution(
        "asked", "income", **chosen
    ).to_frame(),
    "suspicions": lambda analyst, chosen: analyst.suspicions(
        "asked", "colour", **chosen
    ).to_frame(),
    "rows": lambda analyst, chosen: analyst.rows("asked", **chosen),
}
"""Every question that takes a selection."""


@pytest.mark.parametrize("question", ASKED)
@pytest.mark.parametrize(
    ("selection", "message"),
    [
        ({"levels": ["open", "lax"]}, "level must be one of strict, open, got 'lax'"),
        ({"periods": [DAYS[0], "2026"]}, "a P1D period reads like '2026-07-04', got '2026'"),
        ({"last_period": "once"}, "a P1D period reads like '2026-07-04', got 'once'"),
        ({"first_period": DAYS[1], "last_period": DAYS[0]}, "must not end before it begins"),
    ],
    ids=["level", "period", "end", "range"],
)
def test_every_question_refuses_what_the_survey_does_not_have(
    collected: Collected, question: str, selection: Selection, message: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        ASKED[question](collected.analyst, selection)
    assert message in str(refused.value)


@pytest.mark.parametrize("question", ASKED)
def test_every_question_refuses_an_unknown_option(collected: Collected, question: str) -> None:
    misspelt: Any = {"level": ["open"]}
    with pytest.raises(TypeError, match="unknown options \\['level'\\]"):
        ASKED[question](collected.analyst, misspelt)


def test_every_question_reads_the_selected_reports_alone(collected: Collected) -> None:
    analyst = collected.analyst
    chosen: Selection = {"levels": ["strict"], "periods": DAYS[1:], "last_period": DAYS[1]}
    mechanism, tally = collected.cohorts("colour", "strict", DAYS[1])[0]
    assert analyst.estimate("asked", "colour", **chosen).reports == tally.n == ROWS
    assert analyst.by_level("asked", "colour", **chosen).parts == {"strict": ROWS}
    watched = analyst.watch("asked", "colour", **chosen)
    assert next(watched).reports == ROWS
    watched.close()
    answer = analyst.distribution("asked", "income", step=50, **chosen)
    histogram = answer.to_frame()
    assert histogram.attrs["reports"] == collected.cohorts("income", "strict", DAYS[1])[0][1].n
    tested = analyst.suspicions("asked", "colour", **chosen).to_frame()
    assert set(tested.index.get_level_values("level")) == {"strict"}
    assert set(tested["reports"]) == {ROWS}
    rows = analyst.rows("asked", **chosen)
    assert len(rows) == ROWS
    assert set(rows["colour__level"]) == {"strict"}
    codes = b"".join(rows["colour"])
    assert mechanism.tally(mechanism.decode(codes, ROWS)) == tally


def test_a_question_without_reports_can_be_asked_again_later(collected: Collected) -> None:
    with pytest.raises(NotReady, match="there are no such reports of 'shape' yet"):
        collected.analyst.estimate("asked", "shape", last_period="1999-01-01")


@pytest.mark.parametrize("by", ["level", "period"])
def test_each_group_is_answered_as_if_it_were_alone(collected: Collected, by: str) -> None:
    analyst = collected.analyst
    if by == "level":
        table = analyst.by_level("asked", "colour").to_frame()
        alone = {
            g: analyst.estimate("asked", "colour", levels=[g]).to_frame()
            for g in ("strict", "open")
        }
    else:
        table = analyst.by_period("asked", "colour").to_frame()
        alone = {day: analyst.estimate("asked", "colour", periods=[day]).to_frame() for day in DAYS}
    assert list(dict.fromkeys(table.index.get_level_values(0))) == list(alone)
    assert table.index.names == [by, "colour"]
    for group, expected in alone.items():
        assert np.array_equal(table.loc[group].to_numpy(), expected.to_numpy())
        assert table.attrs["reports"][group] == expected.attrs["reports"]


# --- frequencies -------------------------------------------------------------------------------


def test_consistency_is_tagged_and_leaves_errors_and_raw_values(collected: Collected) -> None:
    raw = collected.analyst.estimate("asked", "colour", levels=["strict"]).to_frame()
    made = collected.analyst.estimate(
        "asked", "colour", levels=["strict"], consistency="norm-sub"
    ).to_frame()
    assert made.attrs["method"] == raw.attrs["method"] + " + norm-sub"
    assert "raw" not in raw.columns
    assert np.array_equal(made["raw"], raw["estimate"])
    for column in ("standard_error", "low", "high"):
        assert np.array_equal(made[column], raw[column])
    assert made["estimate"].sum() == pytest.approx(1)
    assert made["estimate"].min() >= 0
    ((mechanism, tally),) = collected.cohorts("colour", "strict")
    naive = make_consistent(mechanism.estimate(tally), "norm-sub")
    checked = collected.analyst.estimate(
        "asked", "colour", levels=["strict"], consistency="norm-sub", method="inverse_variance"
    ).to_frame()
    assert checked["estimate"].to_numpy() == pytest.approx(naive.value)


def test_the_effective_sample_size_gives_a_plain_survey_the_same_error(
    collected: Collected,
) -> None:
    table = collected.analyst.estimate("asked", "shape").to_frame()
    n = table["effective_sample_size"]
    plain = np.sqrt(table["estimate"] * (1 - table["estimate"]) / n)
    assert plain.to_numpy() == pytest.approx(table["standard_error"].to_numpy())
    assert (n < table.attrs["reports"]).all()
    numbers = collected.analyst.estimate("asked", "height").to_frame()
    assert "effective_sample_size" not in numbers.columns


def test_forged_reports_shift_by_what_the_mathematics_says(collected: Collected) -> None:
    with pytest.warns(UserWarning, match="this is the pooled estimate"):
        table = collected.analyst.estimate("asked", "colour", forged=100).to_frame()
    assert table.attrs["method"] == "inverse_variance"
    repeats = [Repeats(3.0), Repeats(3.0)]  # the same people may have answered on all days
    expected = largest_shift(Cohorts(collected.cohorts("colour"), repeats), 100)
    assert table["shift_up"].to_numpy() == pytest.approx(expected.up)
    assert table["shift_down"].to_numpy() == pytest.approx(expected.down)
    mean = collected.analyst.estimate(
        "asked", "height", forged=100, method="inverse_variance"
    ).to_frame()
    expected = largest_shift(Cohorts(collected.cohorts("height"), repeats), 100)
    assert mean["shift_up"].to_numpy() == pytest.approx(50 * expected.up)


def test_a_recovered_estimate_is_tagged_with_its_assumption(collected: Collected) -> None:
    table = collected.analyst.estimate(
        "asked", "shape", levels=["open"], recover=0.2, method="inverse_variance"
    ).to_frame()
    ((mechanism, tally),) = collected.cohorts("shape", "open")
    expected = ldp_recover(mechanism, mechanism.estimate(tally), 0.2)
    assert table["estimate"].to_numpy() == pytest.approx(expected.value)
    assert table["raw"].to_numpy() == pytest.approx(expected.raw.value)
    assert table.attrs["method"].endswith(" + ldp-recover(0.2)")


# --- forgeries ---------------------------------------------------------------------------------


def test_honest_reports_are_not_suspected_and_forged_ones_are(
    address: str, analyst: Analyst, own: Callable[[str], Plan]
) -> None:
    plan = own(TOML)
    submit(address, batch(plan, "strict", DAYS[0], people(5000, 1), 1))
    honest = analyst.suspicions(plan.survey, "colour").to_frame()
    assert set(honest.index.get_level_values("test")) == {
        "norm_sub_gap",
        "support_sizes",
        "together",
    }
    assert (honest["reports"] == 5000).all()
    assert (honest["p_value"] > 0.001).all()
    raw = analyst.estimate(plan.survey, "colour", method="inverse_variance").to_frame()["estimate"]
    assert honest.attrs["targets"] == raw.nlargest(3).index.tolist()
    codes = np.tile(np.array([0b11100011, 0b11], dtype=np.uint8), (300, 1))  # seven values
    forged = batch(plan, "strict", DAYS[0], {"colour": np.zeros(300, dtype=np.int64)}, 2)
    forged.columns[0].codes = codes.tobytes()
    submit(address, forged)
    attacked = analyst.suspicions(
        plan.survey, "colour", targets=["v0", "v1", "v8", "v9"]
    ).to_frame()
    assert attacked["p_value"].max() < 1e-3
    with pytest.raises(InvalidInput, match="forged krr reports look like honest ones"):
        analyst.suspicions(plan.survey, "shape").to_frame()
    with pytest.raises(InvalidInput, match="one of some values: 'height' is answered by"):
        analyst.suspicions(plan.survey, "height").to_frame()
    with pytest.raises(InvalidInput, match="must be one of v0"):
        analyst.suspicions(plan.survey, "colour", targets=["v0", "w1"]).to_frame()
    with pytest.raises(NotReady, match="no such reports"):
        analyst.suspicions(plan.survey, "colour", levels=["open"]).to_frame()


def test_a_level_of_one_report_fails_no_test_of_another(
    address: str, analyst: Analyst, own: Callable[[str], Plan]
) -> None:
    plan = own(TOML)
    for level, rows in (("strict", 500), ("open", 1)):
        answers = {"colour": people(rows, 1)["colour"]}
        submit(address, batch(plan, level, DAYS[0], answers, 1))
    with pytest.warns(UserWarning, match="too few reports for norm_sub_gap at open"):
        tested = analyst.suspicions(plan.survey, "colour").to_frame()
    assert set(tested.loc["strict"].index) == {"norm_sub_gap", "support_sizes", "together"}
    assert set(tested.loc["open"].index) == {"support_sizes", "together"}


def test_repeated_memos_are_tested_one_period_at_a_time(
    address: str, analyst: Analyst, own: Callable[[str], Plan]
) -> None:
    toml = TOML.replace('name = "colour"', 'name = "colour"\nmemo = 1.0')
    plan = own(toml)
    for seed, day in enumerate(DAYS[:2]):
        answers = {"colour": people(500, seed)["colour"]}
        submit(address, batch(plan, "open", day, answers, seed))
    with pytest.raises(InvalidInput, match="ask for one period"):
        analyst.suspicions(plan.survey, "colour").to_frame()
    one = analyst.suspicions(plan.survey, "colour", periods=DAYS[:1]).to_frame()
    assert (one["reports"] == 500).all()


# --- numbers -----------------------------------------------------------------------------------


def test_without_a_step_a_distribution_is_a_curve_without_intervals(collected: Collected) -> None:
    edges = [0.0, 200.0, 300.0, 1000.0]
    with pytest.warns(UserWarning, match="a curve without intervals"):
        answer = collected.analyst.distribution(
            "asked", "income", levels=["open"], edges=edges, quantiles=[0.1, 0.5]
        )
        below = collected.analyst.cdf("asked", "income", levels=["open"])
        histogram = answer.to_frame()
        quantiles = answer.to_frame("quantiles")
    assert answer.confidence == 0 and not any("intervals" in line for line in answer.lines())
    assert answer.to_csv().splitlines()[0].endswith(",low,high,reports")
    assert plots.figure(below).axes[0].get_ylabel() == "share below"
    ((mechanism, tally),) = collected.cohorts("income", "open")
    expected = pooled(Cohorts([(mechanism, tally)]))
    shares = expected.histogram(np.array(edges) / 500 - 1)
    assert histogram["estimate"].to_numpy() == pytest.approx(shares)
    assert list(histogram.index) == [(0.0, 200.0), (200.0, 300.0), (300.0, 1000.0)]
    medians = expected.quantiles([0.1, 0.5])
    assert quantiles["estimate"].to_numpy() == pytest.approx(500 * (medians + 1))
    assert list(quantiles.index) == [0.1, 0.5]
    for table in (histogram, quantiles):
        assert table[["standard_error", "low", "high"]].isna().all(axis=None)
    assert (histogram.attrs["method"], histogram.attrs["step"]) == ("ems", None)


def test_with_a_step_the_shares_of_all_levels_have_intervals(collected: Collected) -> None:
    answer = collected.analyst.distribution("asked", "income", bins=4, step=50)
    histogram = answer.to_frame()
    quantiles = answer.to_frame("quantiles")
    every = collected.cohorts("income")
    found = stratified_points(Cohorts(every, [Repeats(3.0), Repeats(3.0)]), 21)
    shares = found.bins(np.array([0, 5, 10, 15, 21]))
    assert list(histogram.index) == [(0.0, 250.0), (250.0, 500.0), (500.0, 750.0), (750.0, 1000.0)]
    assert histogram["estimate"].to_numpy() == pytest.approx(shares.value)
    assert histogram["standard_error"].to_numpy() == pytest.approx(shares.standard_error)
    assert histogram["low"].to_numpy() == pytest.approx(shares.low)
    assert histogram["high"].to_numpy() == pytest.approx(shares.high)
    middle = found.quantiles([0.25, 0.5, 0.75])
    assert (quantiles["low"] == 50.0 * middle.low).all()
    assert (quantiles["high"] == 50.0 * middle.high).all()
    assert quantiles["standard_error"].isna().all()
    assert histogram.attrs["method"] == "scoring, stratified"
    assert (histogram.attrs["step"], histogram.attrs["repeats"]) == (50.0, 3.0)


@pytest.mark.parametrize(
    ("attribute", "choices", "message"),
    [
        ("height", {}, "onebit reports tell of the mean alone"),
        ("colour", {}, "'colour' has values: ask for their frequencies"),
        ("income", {"edges": [5.0, 1.0]}, "two or more rising numbers in [0, 1000]"),
        ("income", {"edges": [-1.0, 1.0]}, "two or more rising numbers in [0, 1000]"),
        ("income", {"bins": 5000}, "there may be 1024 bins, got 5000"),
        ("income", {"edges": [0.0, 30.0], "step": 50}, "an edge at 30 cuts a point"),
        ("income", {"bins": 22, "step": 50}, "21 values make at most 21 bins, got 22"),
        ("income", {"step": 30}, "whole steps must lead from 0 to 1000, got a step of 30"),
        ("income", {"step": 2}, "cannot tell 501 points apart"),
        ("income", {"step": -1}, "step must be finite and > 0, got -1.0"),
        ("income", {"quantiles": [1.5]}, "levels must lie strictly between 0 and 1"),
        ("income", {"confidence": 1.0}, "confidence must lie strictly between 0 and 1"),
    ],
    ids=range(12),
)
def test_a_distribution_that_cannot_be_had_is_refused(
    collected: Collected, attribute: str, choices: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        collected.analyst.distribution("asked", attribute, **choices).to_frame()
    assert message in str(refused.value)


# --- live --------------------------------------------------------------------------------------


def test_a_watched_estimate_comes_again_when_reports_came_in(
    address: str, analyst: Analyst, own: Callable[[str], Plan]
) -> None:
    plan = own(TOML)
    watched = analyst.watch(plan.survey, "shape", interval=0.1)
    first = batch(plan, "open", DAYS[0], people(90, 1), 1)
    threading.Timer(0.3, submit, (address, first)).start()  # there is nothing yet
    assert next(watched).reports == 60
    submit(address, batch(plan, "open", DAYS[1], people(90, 2), 2))
    again = next(watched)
    assert again.reports == 120
    now = analyst.estimate(plan.survey, "shape").to_frame()
    assert np.array_equal(again.to_frame().to_numpy(), now.to_numpy())
    watched.close()
    with pytest.raises(InvalidInput, match="the interval must be at least"):
        next(analyst.watch(plan.survey, "shape", interval=0.01))


def test_a_stopping_server_lets_watchers_go(tmp_path: Any) -> None:
    answers: list[int] = []
    with serving(tmp_path / "data") as address:
        _, plan = register(address, TOML)
        submit(address, batch(plan, "open", DAYS[0], people(90, 1), 1))
        analyst = Analyst(address)
        watched = analyst.watch("asked", "shape", interval=3600)
        answers.append(next(watched).reports)
        waiting = threading.Thread(target=lambda: answers.extend(0 for _ in watched))
        waiting.start()
    # Without being let go it would wait for an hour, or be cancelled with an error.
    waiting.join(timeout=5)
    assert not waiting.is_alive()
    assert answers == [60]
    analyst.close()


# --- the cache ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("most", "method"), [(0.0, "mle"), (0.1, "levels differ by 0.1 at most")])
def test_a_bound_that_the_survey_declares_makes_estimates_more_precise(
    most: float, method: str
) -> None:
    plan, bounded = (
        parse(resolve(from_toml(toml, "test.toml")))
        for toml in (TOML, f"levels_differ_at_most = {most}\n{TOML}")
    )
    counts = np.round(ROWS * FREQUENCIES).astype(np.int64)
    tallies = {
        Cohort("asked", plan.revision, "shape", level, DAYS[0]): Tally(int(counts.sum()), counts)
        for level in plan.levels
    }
    question = analyst_pb2.EstimateRequest(attribute="shape")
    found, usual = (queries.estimate(p, question, tallies) for p in (bounded, plan))
    assert (found.method, usual.method) == (method, "stratified")
    for row, other in zip(rows_of(found), rows_of(usual), strict=True):
        assert row.standard_error < other.standard_error
    question.method = "stratified"
    assert rows_of(queries.estimate(bounded, question, tallies))[0] == rows_of(usual)[0]


def test_a_bound_is_named_in_the_unit_of_the_answer_and_notes_do_not_say_stratified() -> None:
    plan = parse(resolve(from_toml(f"levels_differ_at_most = 0.05\n{TOML}", "test.toml")))
    tallies = {}
    for level in plan.levels:
        mechanism = plan.levels[level].mechanisms["income"]
        codes = mechanism.randomize_many(np.zeros(ROWS), SeededCoins(3))
        cohort = Cohort("asked", plan.revision, "income", level, DAYS[0])
        tallies[cohort] = mechanism.tally(codes)
    question = analyst_pb2.EstimateRequest(attribute="income")
    answer = queries.estimate(plan, question, tallies)
    assert answer.method == "levels differ by 50 at most"  # of 0 to 1000
    said = " ".join(of_estimates(answer))
    assert "under the bound that the survey declares: levels differ by 50 at most" in said
    assert "stratified" not in said
    question.method = "stratified"
    assert "(stratified). The pooled one would hold for people of all levels" in " ".join(
        of_estimates(queries.estimate(plan, question, tallies))
    )


def test_an_answer_is_computed_once_until_reports_come_in(
    address: str, analyst: Analyst, own: Callable[[str], Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[object] = []
    real = Analyses.run

    async def counted(these: Analyses, work: Any, **begun: bool) -> Any:
        computed.append(work)
        return await real(these, work, **begun)

    monkeypatch.setattr(Analyses, "run", counted)
    plan = own(TOML)
    submit(address, batch(plan, "open", DAYS[0], people(90, 1), 1))
    first = analyst.estimate(plan.survey, "shape")
    assert analyst.estimate(plan.survey, "shape").to_dict() == first.to_dict()
    assert len(computed) == 1
    analyst.estimate(plan.survey, "shape", confidence=0.9)
    assert len(computed) == 2
    submit(address, batch(plan, "open", DAYS[0], people(90, 2), 2))
    assert analyst.estimate(plan.survey, "shape").reports == 120
    assert len(computed) == 3


# --- the command -------------------------------------------------------------------------------


def test_the_command_shows_what_was_asked_for(collected: Collected, tmp_path: Path) -> None:
    table = asked(collected, "colour", "--forged", 100, "--consistent", "norm-sub")
    for heading in ("raw", "effective n", "forged", "norm-sub"):
        assert heading in table
    assert "errors allow for people with 3 reports each" in table
    grouped = json.loads(asked(collected, "colour", "--by", "period", "--json"))
    assert list(grouped["parts"]) == DAYS
    day = ("--from", DAYS[1], "--to", DAYS[1])
    ranged = asked(collected, "colour", *day, "--level", "open", "--json")
    assert json.loads(ranged)["reports"] == ROWS
    lines = list(csv.DictReader(asked(collected, "shape", "--by", "level", "--csv").splitlines()))
    assert [line["level"] for line in lines] == ["strict"] * 10 + ["open"] * 10
    assert [line["value"] for line in lines] == VALUES * 2
    assert float(lines[0]["effective_sample_size"]) > 0
    curve = command(collected, "income", "--bins", 4, view="ask distribution")
    assert "quantile" in curve.stdout
    assert re.search(r"250 to under 500 +│ +0\.\d+ │ +\u2013 │ +\u2013 │", curve.stdout)
    assert "warning: this is a curve without intervals" in curve.stderr
    steps = asked(collected, "income", "--bins", 4, "--step", 50, view="ask distribution")
    assert re.search(r"250 to under 500 +│ +0\.\d+ │ +0\.\d+ to 0\.\d+ │ +0\.\d+", steps)
    lines = asked(collected, "income", "--bins", 4, "--csv", view="ask distribution").splitlines()
    assert lines[0] == "attribute,left,right,estimate,standard_error,low,high,reports"
    assert lines[1].startswith("income,0.0,250.0,0.")
    assert ",,,," in lines[1]
    document = json.loads(asked(collected, "colour", "--json", view="ask suspicions"))
    assert {*document["tables"]["rows"]["index"]["test"]} >= {"together", "norm_sub_gap"}
    assert document["figures"]["targets"]
    file = tmp_path / "tests.png"
    drawn = command(collected, "colour", "--plot", file, view="ask suspicions")
    assert (drawn.returncode, "drawn into" in drawn.stderr) == (0, True)
    assert (tmp_path / "tests.png").read_bytes().startswith(b"\x89PNG")


def test_the_command_refuses_what_contradicts_itself(collected: Collected) -> None:
    for arguments, message in (
        (
            ("--by", "week"),
            "answers are by level, period, map or a property, and the survey has no property "
            "'week'; it declares none",
        ),
        (("--where", "week"), "where must read like platform=ios or version=1,2, got 'week'"),
        (("--where", "panel=x"), "a panel is a number from 1 on, got 'x'"),
        (("--where", "panel=9999999999"), "a panel is a number from 1 on, got '9999999999'"),
        (
            ("--by", "level", "--sum", "red"),
            "this view has no option 'sum', only attribute, by, level",
        ),
        (("--forged", -1), "forged must be a whole number from 0 to 999,999,999, got '-1'"),
    ):
        refused = command(collected, "colour", *arguments)
        assert refused.returncode == 1
        assert message in refused.stderr
