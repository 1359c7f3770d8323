"""`hearsay survey init` and `check`: a survey from a table, and a table against a survey."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hearsay
import hearsay.plans.plan
from hearsay import files
from hearsay.plans.kinds import Categorical, Numeric, Ratings, SetOf
from hearsay.plans.plan import Plan
from hearsay.testing import RecordingTransport
from hearsay_server.demo import sources as demo
from hearsay_server.surveys import drafting, fitting, guessing, people
from hearsay_server.surveys import survey as surveys
from hearsay_server.surveys.guessing import Draft, Guess
from hearsay_server.surveys.people import People
from ldp import InvalidInput

from .command import hearsay as command

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"

SURVEY = """
name = "t"
[levels]
one = 1.0
[[attributes]]
name = "mood"
[attributes.categorical]
values = ["1", "2", "Fine"]
[[attributes]]
name = "minutes"
[attributes.numeric]
high = 60
[[attributes]]
name = "wage"
[attributes.numeric]
high = 100
bins = 10
clamp = true
[[attributes]]
name = "uses"
[attributes.set]
values = ["mail", "maps", "chat"]
at_most = 2
[[attributes]]
name = "staff"
[attributes.ratings]
keys = ["doctor", "nurse"]
low = 1
high = 5
[[attributes]]
name = "word"
[attributes.strings]
alphabet = "abcdefghijklmnopqrstuvwxyz"
longest = 8
"""
CELLS = {
    "mood": ["1", "2.0", " 2 ", "fine", "Fine", "", " ", "3", "02", "1e0", "NA"],
    "minutes": ["0", "60", "60.1", "-0", "nan", "inf", "", "5+", " 7 ", "1e1", "1e999"],
    "wage": ["-5", "150", "55", "x", "", "100", "1_0", "NA", "0.0", "inf", "7"],
    "uses": [
        "mail", "mail; maps", "mail;maps;chat", "", "talk", ";", "mail;mail", "Mail", "1", "a", "",
    ],
    "staff": [
        "doctor=4", "nurse=6", "doctor", "", "doctor=4;nurse=1", "=", "x=1", "nurse=1.5",
        "doctor=nan", "doctor=3;doctor=4", "nurse= 2",
    ],
    "word": ["you", "You ", "", "naïve", "two words", "muchtoolong", "x", "é", "A", "7", "-"],
}  # fmt: skip


def plan_of(text: str) -> Plan:
    return hearsay.plans.plan.parse(surveys.resolve(surveys.from_toml(text, "survey.toml")))


def table(text: str) -> People:
    return people.parse(text, "data.csv")


def guesses(text: str) -> dict[str, Guess]:
    return {each.name: each for each in guessing.guess(table(text), "data").guesses}


def column(cells: list[str], heading: str = "asked") -> Guess:
    rows = "\n".join('"' + cell.replace('"', '""') + '"' for cell in cells)
    return next(iter(guesses(f'"{heading}",also\n' + "\n".join(
        f"{row},{'yes' if n % 2 else 'no'}" for n, row in enumerate(rows.split("\n"))
    )).values()))  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Age,age\n1,2\n", "columns 'Age' and 'age' (column 2) both have the name 'age'"),
        (
            "a" + "".join(f",b{n}" for n in range(5000)) + "\n" + "1," * 5000 + "1\n",
            "5,001 columns",
        ),
    ],
    ids=range(2),
)
def test_columns_that_no_survey_can_ask_are_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        table(text)
    assert said in str(refused.value)


def test_a_table_has_names_and_rows_as_the_file_has_them(tmp_path: Path) -> None:
    text = '\ufeffHours per week,2nd,\n1, x,"a\nb"\n\n2,y,"c"\n'
    file = tmp_path / "data.csv.gz"
    file.write_bytes(gzip.compress(text.encode()))
    read = people.read(file)
    assert dict(read.headings) == {
        "hours_per_week": "Hours per week",
        "q_2nd": "2nd",
        "column_3": "",
    }
    assert dict(read.columns) == {
        "hours_per_week": ("1", "2"),
        "q_2nd": ("x", "y"),
        "column_3": ("a\nb", "c"),
    }
    assert read.rows == [2, 5]


def test_a_check_names_row_value_and_reason() -> None:
    plan = plan_of(SURVEY)
    text = "mood,minutes,uses,extra\n3.0,1,mail,\n2.0,61,talk;mail,\n,x,mail;maps;chat,\nfine,2,,\n"
    found = fitting.fit(plan, table(text))
    assert found.missing == ("wage", "staff", "word")
    assert found.unused == ("extra",)
    assert not found.fits
    told = {(m.attribute, m.row): (m.value, m.reason) for c in found.columns for m in c.misfits}
    assert told == {
        ("mood", 2): ("3.0", "must be one of 1, 2, Fine"),
        ("mood", 3): ("2.0", "must be one of 1, 2, Fine; write 2, without the decimal point"),
        ("mood", 5): ("fine", "must be one of 1, 2, Fine; the survey has 'Fine'"),
        ("minutes", 3): ("61", "must lie in [0, 60]"),
        ("minutes", 4): ("x", "must be a number"),
        ("uses", 3): (
            "talk;mail",
            "must have items of mail, maps, chat alone; 'talk' is none of them",
        ),
        ("uses", 4): ("mail;maps;chat", "must have at most 2 items"),
    }
    assert [(c.answers, c.blanks) for c in found.columns] == [(0, 1), (2, 0), (2, 0)]


def test_what_counts_as_another_answer_is_told() -> None:
    found = fitting.fit(plan_of(SURVEY), table("wage\n-5\n5\n101\n"))
    assert (found.columns[0].answers, found.columns[0].moved) == (3, 2)


def test_a_check_agrees_with_the_demo_and_with_the_sdk(tmp_path: Path) -> None:
    file = tmp_path / "data.csv"
    lines = [
        ",".join(CELLS),
        *(",".join(f'"{c}"' for c in row) for row in zip(*CELLS.values(), strict=True)),
    ]
    file.write_text("\n".join(lines))
    read, survey = people.read(file), surveys.from_toml(SURVEY, "t.toml")
    data = surveys.resolve(survey)
    plan = hearsay.plans.plan.parse(data)
    found = fitting.fit(plan, read)
    misfits = {(m.attribute, m.row) for c in found.columns for m in c.misfits}
    answers = {
        (name, row)
        for name, cells in read.columns.items()
        for row, cell in zip(read.rows, cells, strict=True)
        if (name, row) not in misfits
        and (cell.strip() or name in ("uses", "staff"))  # blank: nothing of a set is an answer
    }
    assert {c.attribute: c.answers for c in found.columns} == {
        name: sum(1 for each, _ in answers if each == name) for name in CELLS
    }
    taken = demo.from_csv(file, survey)
    assert len(taken.respondents) == len(read)  # each has some answer, so rows keep their places
    assert answers == {
        (name, row)
        for row, given in zip(read.rows, taken.respondents, strict=True)
        for name in given
    }
    assert taken.left_out == len(read) * len(CELLS) - len(answers)
    with hearsay.Client(
        RecordingTransport(data), "t", epsilon=1.0, ledger=hearsay.MEMORY, consent=True, level="one"
    ) as client:
        client.wait_ready()
        for place, row in enumerate(read.rows):
            person = client.person(str(row))
            person.grant()
            cells = {}
            for name, column_ in read.columns.items():
                try:
                    cells[name] = people.answer(plan.attributes[name].domain, column_[place])
                except ValueError:
                    cells[name] = column_[place]  # what an app would give that reads no number
            recorded = person.record(**cells)
            fits = {name for name in CELLS if (name, row) in answers}
            assert set(recorded.taken) - set(recorded.invalid) == fits
    assert sum(c.blanks + c.wrong for c in found.columns) == taken.left_out


def test_kinds_are_guessed() -> None:
    assert column(["yes", "no"] * 30).kind == "categorical"
    rating = column(["1", "2", "5"] * 30)
    assert (rating.kind, rating.keys) == ("categorical", {"values": ["1", "2", "3", "4", "5"]})
    age = column([str(n % 71 + 17) for n in range(600)], "Age in years")
    assert (age.name, age.kind) == ("age_in_years", "numeric")
    assert age.keys == {"low": 15.0, "high": 90.0, "clamp": True, "step": 1}
    whole = column(["1.0", "2.0", "3.0"] * 30)
    assert whole.kind == "numeric"
    assert "write them without the decimal point" in whole.noted[0]
    assert column([f"{n / 7:.3f}" for n in range(100)]).kind == "numeric"  # all differ: measured
    uses = column(["mail;maps", "mail", "", "chat;maps"] * 30)
    assert (uses.kind, uses.blanks) == ("set", 30)
    assert uses.keys == {"values": ["chat", "mail", "maps"], "at_most": 2, "clamp": True}
    staff = column(["doctor=4;nurse=5", "nurse=1"] * 30)
    assert staff.kind == "ratings"
    assert staff.keys == {"keys": ["doctor", "nurse"], "low": 1.0, "high": 5.0}
    far = column(["1"] * 99 + ["5000"] + ["3"] * 99 + ["7"] * 900)
    assert far.keys["high"] == 7
    assert "1 of 1,099 rows lie outside 1 to 7" in far.noted[0]


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        ([""] * 9, "all cells are blank"),
        (["x"] * 9, "all rows have the same value"),
        ([f"AB-{n}" for n in range(30)], "an identifier or free text: all rows differ"),
        ([str(n) for n in range(30)], "an identifier or free text: all rows differ"),
        ([f"u{n % 25}@example.org" for n in range(60)], "addresses of e-mail"),
        (["2024-05-01", "2024-05-02"] * 30, "dates or times"),
        (["1/2/2024 10:00", "3/2/2024 11:00"] * 30, "dates or times"),
        (["12:30", "12:31"] * 30, "dates or times"),
        ([f"I said {n % 40}" for n in range(90)], "free text: more than 18 different values"),
        ([f"{'abcdefghij'[n % 10]}{'klmno'[n % 5]}{'pqrst'[n // 9 % 5]}" for n in range(99)],
         "words, more than 19 different ones: ask for them as strings"),
        ([f"{n % 70 * 37:05d}" for n in range(140)], "free text: more than 28 different values"),
        ([str(n % 50 * 1000) for n in range(60)] + ["n/a"] * 50, "50 rows have 'n/a'"),
        (["a  b", "c"] * 30, "row 2: a value: 'a  b' has a space"),
        (["\u202eevil", "c"] * 30, "contains U+202E"),
    ],
)  # fmt: skip
def test_what_is_no_question_is_left_out_with_its_reason(cells: list[str], why: str) -> None:
    guess = column(cells)
    assert not guess.kind
    assert why in guess.why


def test_a_column_named_as_an_identifier_is_left_out() -> None:
    assert column([str(n % 300) for n in range(900)], "person_id").kind == ""


def test_rare_values_and_blanks_are_told() -> None:
    guess = column(["flu"] * 50 + ["rabies"] * 3 + [""] * 7)
    assert (guess.rare, guess.blanks) == (("rabies",), 7)
    draft = Draft("data", "data.csv", 60, (guess,))
    assert "  fewer than 20 rows each: 'rabies'" in drafting.lines(draft)
    assert any("somebody has them" in line for line in drafting.warnings(draft))


def test_nothing_to_ask_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no column that can be a question: a: all rows have"):
        guessing.guess(table("a\nx\nx\n"), "data")


def test_headings_that_hide_something_stand_escaped_in_comments() -> None:
    text = drafting.toml(guessing.guess(table('"a\u202eb\nname = ""x""",q\n1,y\n2,n\n'), "data"))
    assert "\n#   'a\\u202eb\\nname = \"x\"': " in text
    assert list(plan_of(text).attributes) == ["q"]


CELL = st.one_of(
    st.sampled_from(["", "yes", "no", "1", "2", "3.0", "-1e3", "mail;maps", "a=1;b=2", '"', "#\\"]),
    st.floats(-1e6, 1e6).map(lambda number: f"{number:.4g}"),
    st.text(max_size=4),
)


@settings(max_examples=8, deadline=None)
@given(st.lists(st.lists(CELL, min_size=2, max_size=2), min_size=3, max_size=12), st.integers(1, 9))
def test_a_guessed_survey_is_a_survey_that_the_table_fits(
    rows: list[list[str]], times: int
) -> None:
    quoted = [",".join('"' + c.replace('"', '""') + '"' for c in row) for row in rows]
    data = "\n".join(["one,two", *quoted * times]).encode("utf-8", "surrogatepass")
    try:
        read = people.parse(files.decoded(data, "data.csv"), "data.csv")
        draft = guessing.guess(read, "data")
    except InvalidInput:
        return
    # Splitting takes a tenth of the time of comparing budgets.
    text = drafting.toml(draft).replace('budget = "auto"', 'budget = "split"')
    found = fitting.fit(plan_of(text), read)
    strays = {guess.name for guess in draft.asked if any("withheld" in n for n in guess.noted)}
    assert {misfit.attribute for c in found.columns for misfit in c.misfits} <= strays


def test_init_writes_once_and_check_agrees(tmp_path: Path) -> None:
    data, out = tmp_path / "My data.csv", tmp_path / "out.toml"
    data.write_text("id,How?,age\n" + "".join(f"{n},{'ab'[n % 2]},{n % 40}\n" for n in range(200)))
    done = command("survey", "init", data, "--out", out)
    assert done.returncode == 0, done.stderr
    assert "id: left out: an identifier" in done.stdout
    assert "How?: a choice" in done.stdout
    text = out.read_text()
    assert 'name = "my_data"' in text
    assert 'title = "How?"' in text
    assert '# a choice: few different values\n[[attributes]]\nname = "how"' in text
    again = command("survey", "init", data, "--out", out)
    assert again.returncode == 1
    assert "exists" in again.stderr
    assert command("survey", "init", data, "--out", out, "--force", "--name", "x").returncode == 0
    assert 'name = "x"' in out.read_text()
    fine = command("survey", "check", out, data)
    assert fine.returncode == 0
    assert "All 200 rows" in fine.stdout
    data.write_text("how,age\na,3.0\n1.0,99\nc,x\n")
    wrong = command("survey", "check", out, data, "--first", "1")
    assert wrong.returncode == 1
    assert "how, row 3: '1.0' must be one of a, b" in wrong.stdout
    assert "how: 1 more" in wrong.stdout
    told = json.loads(command("survey", "check", out, data, "--json").stdout)
    assert [(c["attribute"], len(c["misfits"])) for c in told["columns"]] == [
        ("how", 2),
        ("age", 1),
    ]
    assert not told["fits"]


@pytest.mark.skipif(not SHARED.is_dir(), reason="the public tables are not beside this checkout")
def test_surveys_guessed_from_real_tables_ask_what_they_should() -> None:
    read = people.read(SHARED / "yrbss" / "yrbss.csv.gz")
    draft = guessing.guess(read, "yrbss")
    plan = plan_of(drafting.toml(draft))
    assert len(plan.attributes) == 13
    assert [guess.name for guess in draft.left_out] == ["rownames"]
    domains = {name: attribute.domain for name, attribute in plan.attributes.items()}
    assert isinstance(domains["height"], Numeric)
    assert isinstance(domains["race"], Categorical)
    assert not any(isinstance(domain, SetOf | Ratings) for domain in domains.values())
    found = fitting.fit(plan, read)
    assert {m.value for c in found.columns for m in c.misfits} == {"other"}  # a grade
