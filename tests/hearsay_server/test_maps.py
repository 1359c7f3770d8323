"""People mind different answers to one question: what the server takes, keeps and answers."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from collected import register
from command import hearsay
from numpy.typing import NDArray
from serving import submit

from hearsay import Agreement, Analyst, Client, create_ledger
from hearsay.asking.plots import figure
from hearsay.plans.plan import Plan, parse
from hearsay.testing import RecordingTransport
from hearsay.v1 import analyst_pb2, collector_pb2
from hearsay_server.answers import queries
from hearsay_server.answers.rows import chunks
from hearsay_server.commands import codegen, codegen_typescript
from hearsay_server.ingest.intake import Cohort, Limits, Refused, tallies_of
from hearsay_server.storage.forgetting import forget
from hearsay_server.storage.selection import Selected
from hearsay_server.storage.store import Store
from hearsay_server.storage.verify import Verdict, verify
from hearsay_server.surveys import survey as surveys
from hearsay_server.surveys.describe import describe
from ldp import InvalidInput, Tally
from ldp.core.estimation import Cohorts
from ldp.core.mechanism import Categorical
from ldp.core.tally import add_up
from ldp.estimating.likelihood import channel_matrix
from ldp.estimating.pooling import planned_covariance, pool
from ldp.testing import SeededCoins
from support import Calendar

VALUES = ("none", "cold", "flu", "std")
TOML = f"""
name = "clinic"
title = "Clinic"
[levels]
strict = 2.0
open = 6.0
[[attributes]]
name = "diagnosis"
[attributes.categorical]
values = {list(VALUES)}
[attributes.categorical.maps.mine]
sensitive = ["std"]
[attributes.categorical.maps.work]
sensitive = ["flu", "cold"]
[[attributes]]
name = "smokes"
[attributes.categorical]
values = ["no", "yes"]
"""
FROZEN = surveys.resolve(surveys.from_toml(TOML, "clinic.toml"))
PLAN = parse(FROZEN)
MAPS = ("", "mine", "work")
SHARES = {"": [0.4, 0.3, 0.2, 0.1], "mine": [0.2, 0.2, 0.2, 0.4], "work": [0.1, 0.4, 0.4, 0.1]}
"""The answers of those who chose each map."""
ROWS = {"strict": 1200, "open": 800}


def batch(plan: Plan, level: str, chosen: str, rows: int, seed: int) -> collector_pb2.Batch:
    """A batch of people who all chose a level and a map, and who all smoke."""
    answers = np.random.default_rng(seed).choice(len(VALUES), rows, p=SHARES[chosen])
    coins = SeededCoins(seed)
    mechanism = plan.mechanism(level, "diagnosis", chosen)
    other = plan.mechanism(level, "smokes")
    assert isinstance(mechanism, Categorical)
    return collector_pb2.Batch(
        id=seed.to_bytes(16, "big"),
        survey=plan.survey,
        revision=plan.revision,
        period="once",
        rows=rows,
        columns=[
            collector_pb2.Column(
                attribute="diagnosis",
                level=level,
                codes=mechanism.encode(mechanism.randomize_many(answers, coins)),
                map=chosen,
            ),
            collector_pb2.Column(
                attribute="smokes",
                level=level,
                codes=other.encode(other.randomize_many(np.ones(rows, dtype=np.int64), coins)),
            ),
        ],
    )


def everybody(plan: Plan) -> list[collector_pb2.Batch]:
    """Two batches of each level and map."""
    cohorts = [(level, chosen) for level in plan.levels for chosen in MAPS] * 2
    return [batch(plan, *cohort, ROWS[cohort[0]], n) for n, cohort in enumerate(cohorts)]


@pytest.fixture(scope="module")
def clinic(address: str) -> Iterator[tuple[str, Analyst]]:
    _, plan = register(address, TOML)
    results = submit(address, *everybody(plan))
    assert {result.status for result in results} == {collector_pb2.Result.STORED}, results
    with Analyst(address) as analyst:
        yield address, analyst


def summed(made: collector_pb2.Batch) -> dict[Cohort, NDArray[np.int64]]:
    return {cohort: tally.counts for cohort, tally in tallies_of(made, PLAN).items()}


def test_a_ledger_tells_what_several_maps_together_protect(tmp_path: Path) -> None:
    frozen = surveys.resolve(surveys.from_toml(TOML.replace("title", 'period = "P1D"\ntitle'), "t"))
    calendar, file = Calendar(-1), tmp_path / "ledger.db"
    create_ledger(file)
    for chosen in ("mine", "work"):
        with Client(
            RecordingTransport(frozen),
            Agreement.on(frozen),
            ledger=file,
            level="strict",
            maps={"diagnosis": chosen},
            consent=True,
            clock=calendar,
        ) as client:
            assert client.record(diagnosis="none", smokes="no")
        calendar.now += timedelta(days=1)
    shown = hearsay("device", "show", file, COLUMNS="160").stdout
    assert "diagnosis was answered by mine, work, which together protect no value" in shown
    assert "diagnosis (strict, map work)" in shown
    (found,) = json.loads(hearsay("device", "show", file, "--json").stdout)["surveys"]
    assert found["maps"] == {"diagnosis": {"chosen": ["mine", "work"], "protected": []}}


def test_a_code_that_reveals_an_answer_says_so() -> None:
    domain = PLAN.attributes["diagnosis"].domain
    said = set()
    for chosen in MAPS:
        mechanism = PLAN.mechanism("open", "diagnosis", chosen)
        rows = mechanism.channel().rows
        for code in range(mechanism.tally_size):
            words = describe(domain, mechanism, bytes([code])).partition("  ")[2]
            possible = [v for v, row in zip(VALUES, rows, strict=True) if row[code]]
            assert words.startswith("reveals: ") == (len(possible) == 1)
            if len(possible) == 1:
                assert words == f"reveals: {possible[0]}"
                said.add((chosen, possible[0]))
    assert said == {("mine", v) for v in ("none", "cold", "flu")} | {
        ("work", v) for v in ("none", "std")
    }


# --- what is taken ---------------------------------------------------------------------------


def test_a_batch_is_counted_by_its_map() -> None:
    found = tallies_of(batch(PLAN, "open", "mine", 7, 1), PLAN)
    diagnosis = Cohort("clinic", PLAN.revision, "diagnosis", "open", "once", "mine")
    smokes = Cohort("clinic", PLAN.revision, "smokes", "open", "once")
    assert {cohort: tally.n for cohort, tally in found.items()} == {diagnosis: 7, smokes: 7}


@pytest.mark.parametrize(
    ("position", "chosen", "reason"),
    [
        (0, "yours", "'diagnosis' of 'clinic' has no map 'yours'"),
        (0, "mine\0", "has no map"),
        (1, "mine", "'smokes' of 'clinic' has no map 'mine'"),
    ],
)
def test_a_map_that_the_question_lacks_is_refused(position: int, chosen: str, reason: str) -> None:
    made = batch(PLAN, "open", "mine", 200, 1)
    made.columns[position].map = chosen
    with pytest.raises(Refused, match=reason):
        tallies_of(made, PLAN)


def test_a_row_answers_by_one_map_and_a_map_is_there_once() -> None:
    made = batch(PLAN, "open", "mine", 3, 1)
    made.columns.add().CopyFrom(batch(PLAN, "open", "work", 3, 2).columns[0])
    with pytest.raises(Refused, match="row 0 answers 'diagnosis' twice"):
        tallies_of(made, PLAN)
    made = batch(PLAN, "open", "mine", 3, 1)
    made.columns.add().CopyFrom(made.columns[0])
    with pytest.raises(Refused, match="'diagnosis' at 'open' by the map 'mine' is there twice"):
        tallies_of(made, PLAN)


def test_modules_have_the_maps_with_a_type_of_their_names() -> None:
    written: dict[str, Any] = {}
    exec(codegen.module(FROZEN), written)
    assert written["AGREEMENT"] == Agreement.on(FROZEN)
    assert get_args(written["DiagnosisMap"]) == ("mine", "work")
    typescript = codegen_typescript.module(FROZEN, with_plan=False)
    assert 'export type DiagnosisMap = "mine" | "work";' in typescript
    assert (
        '  maps: {\n    diagnosis: {\n      mine: ["std"],\n      work: ["flu", "cold"],'
        in typescript
    )


# --- what is answered ------------------------------------------------------------------------


def test_an_estimate_is_of_the_mix_of_those_who_chose_each_map(
    clinic: tuple[str, Analyst],
) -> None:
    _, analyst = clinic
    frame = analyst.estimate("clinic", "diagnosis").to_frame()
    truth = np.mean(list(SHARES.values()), axis=0)
    assert frame.attrs["method"] == "stratified"
    assert frame.attrs["reports"] == 12_000
    assert (np.abs(frame["estimate"] - truth) <= 4 * frame["standard_error"]).all()
    assert frame.attrs["homogeneity"] < 1e-6
    with pytest.warns(UserWarning, match="the levels or maps differ"):
        pooled = analyst.estimate("clinic", "diagnosis", method="mle").to_frame()
    assert (pooled["standard_error"] < frame["standard_error"]).all()


def test_those_who_chose_a_map_can_be_asked_for(clinic: tuple[str, Analyst]) -> None:
    _, analyst = clinic
    by_map = analyst.by_map("clinic", "diagnosis").to_frame()
    assert list(dict.fromkeys(by_map.index.get_level_values("map"))) == ["mine", "work", "no map"]
    for chosen in MAPS:
        alone = analyst.estimate("clinic", "diagnosis", maps=[chosen]).to_frame()
        assert alone.attrs["reports"] == 4000
        error = np.abs(alone["estimate"] - SHARES[chosen])
        assert (error <= 4 * alone["standard_error"]).all()
        same = by_map.loc[chosen or "no map"]
        assert np.array_equal(same["estimate"], alone["estimate"])
    cohorts = analyst.estimate("clinic", "diagnosis", maps=["", "work"], levels=["open"]).cohorts
    assert [(each.level, each.map, each.reports) for each in cohorts] == [
        ("open", "", 1600),
        ("open", "work", 1600),
    ]
    with pytest.raises(InvalidInput, match="'diagnosis' has no map 'yours'; it has mine, work"):
        analyst.estimate("clinic", "diagnosis", maps=["yours"]).to_frame()
    with pytest.raises(InvalidInput, match="'smokes' has no map 'mine'; it has none"):
        analyst.estimate("clinic", "smokes", maps=["mine"]).to_frame()
    with pytest.raises(InvalidInput, match="maps are selected in questions about one attribute"):
        analyst.rows("clinic", maps=["mine"])


def test_maps_are_drawn_beside_each_other(clinic: tuple[str, Analyst]) -> None:
    _, analyst = clinic
    (axis,) = figure(analyst.by_map("clinic", "diagnosis")).axes
    dots = [len(line.get_xdata()) for line in axis.lines if line.get_marker() not in ("None", "")]
    assert dots == [len(VALUES)] * len(MAPS)


def test_maps_are_compared(clinic: tuple[str, Analyst]) -> None:
    _, analyst = clinic
    frame = analyst.compare(
        "clinic", "diagnosis", {"maps": ["mine"]}, {"maps": ["work"]}
    ).to_frame()
    difference = np.subtract(SHARES["work"], SHARES["mine"])
    assert (np.abs(frame["difference"] - difference) <= 4 * frame["standard_error"]).all()
    assert frame["adjusted_p_value"].min() < 1e-6
    with pytest.raises(InvalidInput, match=r"both have the level 'open' .*, by the map 'mine'"):
        analyst.compare("clinic", "diagnosis", {"maps": ["mine"]}, {"levels": ["open"]}).to_frame()


def test_two_attributes_are_told_together_by_each_maps_own_channel(
    clinic: tuple[str, Analyst],
) -> None:
    _, analyst = clinic
    table = analyst.crosstab("clinic", "diagnosis", "smokes").to_frame()
    truth = np.mean(list(SHARES.values()), axis=0)  # all of them smoke
    for name, share in zip(VALUES, truth, strict=True):
        row = table.loc[name, "yes"]
        assert abs(row["estimate"] - share) <= 4 * row["standard_error"]
        assert row["standard_error"] < 0.05
    with pytest.raises(InvalidInput, match="maps are selected in questions about one attribute"):
        analyst.crosstab("clinic", "diagnosis", "smokes", maps=["mine"]).to_frame()


def test_the_commands_have_maps(clinic: tuple[str, Analyst]) -> None:
    address, _ = clinic

    def asked(*arguments: str) -> str:
        done = hearsay(*arguments, "--target", address, COLUMNS="160")
        assert done.returncode == 0, done.stderr
        return done.stdout

    shown = asked("query", "clinic", "diagnosis", "--by", "map", "--json")
    assert json.loads(shown)["parts"] == {"mine": 4000, "work": 4000, "no map": 4000}
    shown = asked("query", "clinic", "diagnosis", "--map", "mine", "--map", "", "--level", "open")
    assert "clinic, diagnosis: 3,200 reports" in shown
    assert "The pooled one would hold for people of all maps" in shown
    compared = asked("ask", "compare", "clinic", "diagnosis", "map=mine,")
    assert "difference" in compared
    survey = asked("survey", "show", "clinic")
    assert "diagnosis, work" in survey
    assert "4,800" in survey  # of the level strict, by whatever map


def test_reports_are_counted_by_map(clinic: tuple[str, Analyst]) -> None:
    _, analyst = clinic
    reports = analyst.reports("clinic").loc["once"]
    assert reports["diagnosis", "open", "work"] == 1600
    assert reports["diagnosis", "strict", "no map"] == 2400
    assert reports["smokes", "open", "no map"] == 4800


def test_rows_say_their_maps(clinic: tuple[str, Analyst]) -> None:
    _, analyst = clinic
    frame = analyst.rows("clinic")
    assert "smokes__map" not in frame.columns
    assert frame["diagnosis__map"].value_counts().to_dict() == dict.fromkeys(
        ["mine", "work", "no map"], 4000
    )
    channels = json.loads(frame.attrs["channels"])
    for level, chosen in (("open", "mine"), ("strict", "work"), ("strict", "no map")):
        mine = (frame["diagnosis__level"] == level) & (frame["diagnosis__map"] == chosen)
        name = "" if chosen == "no map" else chosen
        mechanism = PLAN.mechanism(level, "diagnosis", name)
        own = channels["diagnosis"][level]
        told = own if not name else own["maps"][name]
        assert told["integers"] == json.loads(json.dumps(mechanism.integers))
        codes = frame.loc[mine, "diagnosis"].to_numpy(dtype=np.int64)
        counts = np.bincount(codes, minlength=mechanism.tally_size)
        sent = [summed(each) for each in everybody(PLAN)]
        cohort = Cohort("clinic", PLAN.revision, "diagnosis", level, "once", name)
        assert np.array_equal(counts, sum(each[cohort] for each in sent if cohort in each))


def test_rows_of_a_page_keep_their_map_when_they_are_mixed() -> None:
    pages = [everybody(PLAN)]
    (chunk,) = chunks(PLAN, pages, PLAN.levels, np.random.default_rng(1))
    assert isinstance(chunk, analyst_pb2.ExportRowsResponse)
    again = collector_pb2.Batch(id=bytes(16), survey="clinic", period="once", rows=chunk.rows)
    again.columns.extend(chunk.columns)
    expected: dict[Cohort, Tally] = {}
    for each in pages[0]:
        add_up(expected, tallies_of(each, PLAN).items())
    assert tallies_of(again, PLAN) == expected


def test_exported_rows_keep_their_maps(clinic: tuple[str, Analyst], tmp_path: Path) -> None:
    _, analyst = clinic
    pq = pytest.importorskip("pyarrow.parquet")
    from hearsay_server.answers.export import export
    from hearsay_server.answers.spark import _mechanisms, _tallies

    assert export(analyst, "clinic", tmp_path / "rows").rows == 12_000
    expected: dict[Cohort, Tally] = {}
    for each in everybody(PLAN):
        add_up(expected, tallies_of(each, PLAN).items())
    table = pq.read_table(next((tmp_path / "rows").glob("*.parquet")))
    for attribute in ("diagnosis", "smokes"):
        names = [attribute, f"{attribute}__level", "period", f"{attribute}__map"]
        columns = [table[name] for name in names if name in table.column_names]
        found = _tallies(_mechanisms(analyst.show_survey("clinic").plan, attribute), *columns)
        assert {
            Cohort("clinic", PLAN.revision, attribute, *key): tally for key, tally in found.items()
        } == {cohort: tally for cohort, tally in expected.items() if cohort.attribute == attribute}


def test_a_model_is_trained_on_each_maps_own_channel(
    clinic: tuple[str, Analyst], tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    from dpsgd.reports.rows import Rows
    from hearsay_server.answers.export import export

    _, analyst = clinic
    export(analyst, "clinic", tmp_path / "rows")
    frame = analyst.rows("clinic")
    for rows in (Rows.of(frame), Rows.read(tmp_path / "rows", ["diagnosis"])):
        reports = rows.reports("diagnosis")
        assert set(reports.mechanisms) == {
            PLAN.mechanism(level, "diagnosis", chosen) for level in ROWS for chosen in MAPS
        }
        truth = np.mean(list(SHARES.values()), axis=0)
        assert np.abs(reports.indicators().mean(axis=0) - truth).max() < 0.05
    with pytest.raises(InvalidInput, match="no column 'diagnosis__map'"):
        without = frame.drop(columns="diagnosis__map")
        without.attrs = frame.attrs
        Rows.of(without)


def test_what_is_stored_by_map_is_recounted_and_forgotten(where: Path | str) -> None:
    store = Store(where)
    store.create_survey("clinic", PLAN.revision, FROZEN)
    sent = everybody(PLAN)
    now = datetime.now(UTC)
    assert store.add([("", each) for each in sent], now, Limits()) == [True] * len(sent)
    checked = list(verify(store.database))
    assert {one.verdict for one in checked} == {Verdict.EQUAL}
    assert {(one.level, one.map) for one in checked if one.attribute == "diagnosis"} == {
        (level, chosen) for level in ROWS for chosen in MAPS
    }
    (mine,) = store.tallies("clinic", ["diagnosis"], Selected(levels=("open",), maps=("mine",)))
    assert (mine.level, mine.map) == ("open", "mine")
    forget(store.database, PLAN, "once", [each.id for each in sent[1:]], now)
    assert [(c.level, c.map, t.n) for c, t in store.tallies("clinic", ["diagnosis"]).items()] == [
        (sent[0].columns[0].level, sent[0].columns[0].map, sent[0].rows)
    ]
    store.close()


# --- how precise it is -----------------------------------------------------------------------


def test_two_maps_at_epsilon_one_half_are_pooled_as_the_page_says() -> None:
    """8 frequencies by Zipf's law of 20,000 users, of whom each half minds four answers."""
    values = [f"v{n}" for n in range(8)]
    toml = f"""
name = "halves"
[levels]
strict = 0.5
[[attributes]]
name = "x"
[attributes.categorical]
values = {values}
maps.first.sensitive = {values[:4]}
maps.last.sensitive = {values[4:]}
"""
    plan = parse(surveys.resolve(surveys.from_toml(toml, "t")))
    truth = np.arange(1, 9) ** -1.5
    truth /= truth.sum()
    mechanisms = [plan.mechanism("strict", "x", name) for name in plan.maps("x")]
    told = [each for each in mechanisms if isinstance(each, Categorical)]
    covariance = planned_covariance([(each, 10_000) for each in told], truth)
    assert 100 * np.sqrt(np.trace(covariance) / 8) == pytest.approx(0.57, abs=0.005)
    scalar = 1 / sum(1 / each.variance(truth, 10_000).sum() for each in told)
    assert 100 * np.sqrt(scalar / 8) == pytest.approx(1.48, abs=0.005)
    rng = np.random.default_rng(4)
    runs = []
    for _ in range(100):
        drawn = [
            (each, Tally(10_000, rng.multinomial(10_000, truth @ channel_matrix(each))))
            for each in told
        ]
        runs.append(pool(Cohorts(drawn)).value - truth)
    assert 100 * np.sqrt(np.mean(np.square(runs))) == pytest.approx(0.57, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["", "mle"])
def test_intervals_cover_as_often_as_they_say(method: str) -> None:
    """Stratified where people of each map answer differently, pooled where they answer alike."""
    rng, covered = np.random.default_rng(8), []
    sizes = {(level, chosen): n // 4 for level, n in ROWS.items() for chosen in MAPS}
    people = sum(sizes.values())
    for _ in range(500):
        drawn = rng.multinomial(people, [n / people for n in sizes.values()])
        tallies = {}
        for ((level, chosen), _), n in zip(sizes.items(), drawn.tolist(), strict=True):
            mechanism = PLAN.mechanism(level, "diagnosis", chosen)
            assert isinstance(mechanism, Categorical)
            counts = rng.multinomial(n, np.array(SHARES["" if method else chosen]))
            codes = mechanism.tally(
                mechanism.randomize_many(
                    np.repeat(np.arange(len(VALUES)), counts),
                    SeededCoins(int(rng.integers(1 << 60))),
                )
            )
            tallies[Cohort("clinic", PLAN.revision, "diagnosis", level, "once", chosen)] = codes
        found = queries.answered(PLAN, "diagnosis", tallies, method).estimate
        shares = [SHARES["" if method else chosen] for _, chosen in sizes]
        truth = np.average(shares, axis=0, weights=list(sizes.values()))
        low, high = found.interval(0.95)
        covered.append((low <= truth) & (truth <= high))
    assert 0.935 <= np.mean(covered) <= 0.965
