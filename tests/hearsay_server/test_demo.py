"""The demo: the whole job on real input, small here and full under `make demo`."""

import gzip
import io
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

import hearsay.plans.plan
from hearsay import InvalidInput
from hearsay.v1 import collector_pb2
from hearsay_server.demo import exhibits, sources
from hearsay_server.demo import play as demo
from hearsay_server.demo.devices import Respondent, Sent
from hearsay_server.printing import Console
from hearsay_server.storage.store import Store
from hearsay_server.surveys import survey as surveys
from ldp import KRR
from ldp.mechanisms.policies.base import PolicyMechanism

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"

ADULT = """
name = "adult"
[levels]
strict = 2.0
open = 8.0
[[attributes]]
name = "sex"
[attributes.categorical]
values = ["Female", "Male"]
[[attributes]]
name = "hours_per_week"
[attributes.numeric]
low = 0
high = 80
clamp = true
[[attributes]]
name = "occupation"
[attributes.categorical]
values = ["Craft-repair", "Exec-managerial", "Prof-specialty", "Sales", "Other-service"]
"""


def play(source: sources.Source, tmp_path: Path, seed: int) -> tuple[list[demo.Comparison], str]:
    said = io.StringIO()
    console = Console(file=said, width=80)
    results = demo.play(
        source, plot=tmp_path / "plot.png", data=tmp_path / "data", seed=seed, console=console
    )
    return results, said.getvalue()


@pytest.fixture(scope="module")
def redbook() -> sources.Source:
    whole = sources.redbook()
    return sources.Source(whole.title, whole.survey, whole.respondents[:800])


@pytest.mark.slow
def test_the_whole_job_on_the_marriage_survey(redbook: sources.Source, tmp_path: Path) -> None:
    results, said = play(redbook, tmp_path, seed=1)
    known = {f"{result.attribute} {result.label}": result for result in results}
    assert len(results) >= 2 + 5 + 1 + 6 + 4 + 2 + 3 + 2 + 8  # and mean ratings, where known
    assert sum(not result.covered for result in results) <= 6  # each misses once in twenty
    assert known["schools college"].truth == pytest.approx(0.66, abs=0.05)
    assert known["religious+children 3, yes"].truth == pytest.approx(0.25, abs=0.05)
    assert known["jobs: who rated husband"].truth < 1  # students rate none
    assert all(result.standard_error > 0 for result in results)
    assert "What one device really sent" in said
    odds = [float(n) for n in re.findall(r"1 in ([0-9.]+) reports", said)]
    assert odds[:2] == sorted(odds[:2])  # the larger epsilon differs less
    assert said.count("  differs") <= 30
    assert re.search(r"watch the answers come in: http://127.0.0.1:\d+/analyst/redbook", said)
    assert "What the analyst learns" in said
    assert "Next, try:" in said
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    store = Store(tmp_path / "data")
    (stored,) = store.surveys()
    assert (stored.records, stored.batches) == (800, 800)
    plan = hearsay.plans.plan.parse(stored.plan)
    for level in plan.levels.values():
        assert level.budget.reported == 1  # "auto" samples
        assert {m.epsilon for m in level.mechanisms.values()} == {level.epsilon}
        affair = level.mechanisms["affair"]
        assert isinstance(affair, PolicyMechanism)
        revealed = [affair.promise.members[a] for a in affair.promise.ordinary]
        assert revealed == [(0,)]  # a "no" may be revealed, a "yes" never
    assert sum(t.n for q in plan.questions for t in store.tallies("redbook", q).values()) == 800
    tallies = store.tallies("redbook", "affair")
    assert {cohort.level for cohort in tallies} == {"strict", "standard", "open"}
    store.close()


@pytest.mark.slow
def test_a_seed_replays_a_simulation(redbook: sources.Source, tmp_path: Path) -> None:
    few = sources.Source(redbook.title, redbook.survey, redbook.respondents[:50])
    first, _ = play(few, tmp_path / "1", seed=7)
    again, _ = play(few, tmp_path / "2", seed=7)
    other, _ = play(few, tmp_path / "3", seed=8)
    assert first == again
    assert first != other


def test_the_survey_holds_every_respondent() -> None:
    source = sources.redbook()
    assert len(source.respondents) == 6366
    assert source.left_out == 0
    affairs = [answers["affair"] for answers in source.respondents]
    assert affairs.count("yes") == 2053  # 32.2%


@pytest.mark.slow
def test_a_table_of_ones_own(tmp_path: Path) -> None:
    if not (SHARED / "adult").is_dir():
        pytest.skip("the UCI Adult table is not beside this checkout")
    names = "age,workclass,fnlwgt,education,education_num,marital_status,occupation,relationship,"
    names += "race,sex,capital_gain,capital_loss,hours_per_week,native_country,income\n"
    with gzip.open(SHARED / "adult" / "adult.data.gz", "rt") as raw:
        lines = [line for _, line in zip(range(600), raw, strict=False)]
    file = tmp_path / "adult.csv"
    file.write_text(names + "".join(lines))
    source = sources.from_csv(file, surveys.from_toml(ADULT, "adult.toml"))
    assert len(source.respondents) == 600
    assert source.left_out > 0  # occupations that the survey does not list
    results, said = play(source, tmp_path, seed=2)
    assert "answers fit no place in the survey and are withheld" in said
    hours = results[2]
    assert hours.label == "mean"
    assert 38 < hours.truth < 42
    assert abs(hours.estimate - hours.truth) < 4.5 * hours.standard_error


def test_a_survey_of_a_view_alone_shows_no_single_values() -> None:
    """A device has an answer to each attribute of a view, and none to the view itself."""
    text = 'name = "pairs"\nviews = [["a", "b"]]\n[levels]\nopen = 3.0\n' + "".join(
        f'[[attributes]]\nname = "{name}"\n[attributes.categorical]\nvalues = ["no", "yes"]\n'
        for name in ("a", "b")
    )
    plan = hearsay.plans.plan.parse(surveys.resolve(surveys.from_toml(text, "test")))
    assert isinstance(plan.levels["open"].mechanisms["a+b"], KRR)
    column = collector_pb2.Column(attribute="a+b", level="open", codes=b"\0")
    batch = collector_pb2.Batch(columns=[column]).SerializeToString()
    sent = Sent(Respondent(0, "open", {"a": "no", "b": "yes"}, {}), batch)
    said = io.StringIO()
    exhibits.show_devices([sent], plan, Console(file=said))
    assert said.getvalue() == ""


def test_a_table_without_a_column_of_the_survey_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "people.csv"
    file.write_text("sex,age\nMale,30\n")
    with pytest.raises(InvalidInput, match="no column 'hours_per_week'; its columns are sex, age"):
        sources.from_csv(file, surveys.from_toml(ADULT, "adult.toml"))


def test_a_table_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"cannot read .*none\.csv"):
        sources.from_csv(tmp_path / "none.csv", surveys.from_toml(ADULT, "adult.toml"))


def test_a_column_called_as_a_property_is_what_devices_tell(tmp_path: Path) -> None:
    table = tmp_path / "people.csv"
    table.write_text(
        "sex,Work class\nFemale, private\nMale,none of them\nNeither,public\nMale,public\n"
    )
    toml = ADULT.split('[[attributes]]\nname = "hours')[0]
    toml += '[[properties]]\nname = "work_class"\nvalues = ["private", "public"]\n'
    toml += '[[properties]]\nname = "country"\nvalues = ["de"]\n'
    source = sources.from_csv(table, surveys.from_toml(toml, "test.toml"))
    assert [answers["sex"] for answers in source.respondents] == ["Female", "Male", "Male"]
    assert source.properties == [{"work_class": "private"}, {}, {"work_class": "public"}]


@pytest.mark.slow
def test_respondents_draw_their_maps(tmp_path: Path) -> None:
    table = tmp_path / "people.csv"
    table.write_text("sex\n" + "Female\nMale\n" * 60)
    maps = 'maps.hers.sensitive = ["Female"]\nmaps.his.sensitive = ["Male"]\n'
    toml = ADULT.split('[[attributes]]\nname = "hours')[0] + maps
    play(sources.from_csv(table, surveys.from_toml(toml, "test.toml")), tmp_path, seed=5)
    store = Store(tmp_path / "data")
    reports = {(c.level, c.map): t.n for c, t in store.tallies("adult", "sex").items()}
    store.close()
    assert sum(reports.values()) == 120
    assert set(reports) == {(v, m) for v in ("strict", "open") for m in ("", "hers", "his")}


YEARS = """
name = "years"
period = "P1D"
[levels]
usual = 3.0
[[attributes]]
name = "sex"
[attributes.categorical]
values = ["Female", "Male"]
"""


def test_waves_are_played_by_number_and_their_order_is_told_first(tmp_path: Path) -> None:
    table = tmp_path / "waves.csv"
    table.write_text("Wave No,sex\n" + "".join(f"{n},Male\n" for n in (10, 2, 12, 1, 11)))
    now = datetime(2026, 11, 5, 8, tzinfo=UTC)
    source = sources.from_csv(table, surveys.from_toml(YEARS, "t"), "Wave No", now)
    assert list(source.order.values()) == ["1", "2", "10", "11", "12"]
    assert [moment.day for moment in source.moments] == [2, 1, 4, 31, 3]
    table.write_text("wave,sex\n1,Male\n\n,Male\n")
    with pytest.raises(InvalidInput, match="column 'wave', row 4: the period is blank"):
        sources.from_csv(table, surveys.from_toml(YEARS, "t"), "wave", now)


def test_a_column_says_when_people_answer(tmp_path: Path) -> None:
    table = tmp_path / "years.csv"
    table.write_text("Year,sex\n2001,Male\n1999,Female\n2000,neither\n2001,Female\n")
    now = datetime(2026, 11, 5, 8, tzinfo=UTC)
    source = sources.from_csv(table, surveys.from_toml(YEARS, "t"), "year", now)
    assert source.order == {"2026-11-02": "1999", "2026-11-03": "2000", "2026-11-04": "2001"}
    assert [moment.isoformat()[:13] for moment in source.moments] == [
        "2026-11-04T12",
        "2026-11-02T12",
        "2026-11-04T12",  # nobody answers in 2000, which is the third of November
    ]
    with pytest.raises(InvalidInput, match="has no column 'month'; its columns are year, sex"):
        sources.from_csv(table, surveys.from_toml(YEARS, "t"), "month", now)
    monthly = surveys.from_toml(YEARS.replace("P1D", "P1M"), "t")
    with pytest.raises(InvalidInput, match="3 periods, and reports are taken for 60 days"):
        sources.from_csv(table, monthly, "year", now)
    once = surveys.from_toml(YEARS.replace('period = "P1D"', ""), "t")
    with pytest.raises(InvalidInput, match="the survey has no period"):
        sources.from_csv(table, once, "year", now)
