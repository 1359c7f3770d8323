"""A server that lies to analysts: nothing that it says is used, printed raw or written anywhere."""

import contextlib
import inspect
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from collected import DAYS, Collected, collected_from
from command import hearsay
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from lying import Liar, lying

from hearsay import Analyst, AnswerRefused
from hearsay.asking import Note, cautions, wire
from hearsay.asking.answer import Answer
from hearsay.checking import notes
from hearsay.plans.plan import Plan, parse
from hearsay.v1 import answer_pb2, plan_pb2
from hearsay_server.answers.folders import open_folder
from hearsay_server.surveys import survey as surveys
from ldp import InvalidInput

pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")

from hearsay_server.answers.export import export  # noqa: E402
from hearsay_server.answers.manifest import NAME, Manifest  # noqa: E402

COLOURS = ["red", "green", "=1+1", "[blue]"]
ALPHABET = "abcdefghijklmnopqrstuvwxyz"
TOML = f"""
name = "town"
title = "A town"
period = "P1D"
[levels]
strict = 9.0
open = 16.0
[[attributes]]
name = "colour"
title = "Which colour?"
[attributes.categorical]
values = {json.dumps(COLOURS)}
[[attributes]]
name = "place"
mechanism = "oue"
[attributes.categorical]
values = ["here", "there"]
[[attributes]]
name = "mood"
[attributes.categorical]
values = ["good", "bad", "odd"]
[attributes.categorical.maps.mine]
sensitive = ["bad"]
[[attributes]]
name = "age"
mechanism = "square_wave"
[attributes.numeric]
low = 0
high = 9
step = 1
[[attributes]]
name = "apps"
mechanism = "set_pairs"
[attributes.set]
values = ["mail", "maps", "chess"]
at_most = 2
[[attributes]]
name = "stars"
[attributes.ratings]
keys = ["food", "staff"]
low = 1
high = 5
at_most = 2
[[attributes]]
name = "word"
[attributes.strings]
alphabet = "{ALPHABET}"
longest = 3
[[properties]]
name = "platform"
values = ["ios", "web"]
"""
ROWS = 400
PLACES = [
    "../../x",
    "/tmp/x",
    "2026-07-04/../x",
    "..",
    "",
    "once",
    "2026-13-01",
    "2026-W10",
    "x\x1b",
]


def people(plan: Plan, seed: int) -> dict[str, Any]:
    source = np.random.default_rng(seed)
    words = plan.attributes["word"].domain.spelling.numbers(["you", "the"])  # type: ignore[union-attr]
    return {
        "colour": source.integers(0, len(COLOURS), ROWS),
        "place": source.integers(0, 2, ROWS),
        "mood": source.integers(0, 2, ROWS),
        "age": source.integers(0, 10, ROWS) / 4.5 - 1,
        "apps": np.array([[0, 1], [0, -1]])[source.integers(0, 2, ROWS)],
        "stars": np.array([[0, 3], [0, -1]])[source.integers(0, 2, ROWS)],
        "word": words[source.integers(0, 2, ROWS)],
    }


@pytest.fixture(scope="module")
def collected(address: str) -> Iterator[Collected]:
    with Analyst(address) as analyst:
        yield collected_from(people, TOML, address, analyst, properties=["ios"])


@pytest.fixture(scope="module")
def liar(collected: Collected) -> Iterator[Liar]:
    with lying(collected.address) as found:
        yield found


@pytest.fixture
def analyst(liar: Liar) -> Iterator[Analyst]:
    with Analyst(liar.address) as found:
        yield found


# --- exports: nothing is written but what the survey can have ----------------------------------


def files_below(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


@pytest.mark.parametrize("place", PLACES)
def test_a_period_of_rows_that_is_no_period_of_the_survey_writes_nothing(
    liar: Liar, tmp_path: Path, place: str
) -> None:
    def elsewhere(answers: list[Any]) -> None:
        for each in answers:
            if each.HasField("exported") and each.exported.period == DAYS[1]:
                each.exported.period = place
            elif each.period == DAYS[1]:
                each.period = place

    (tmp_path / "other").mkdir()
    before = files_below(tmp_path)
    with liar.saying("ExportRows", elsewhere):
        done = hearsay("export", "town", "--to", tmp_path / "x" / "rows", "--target", liar.address)
        assert (done.returncode, done.stdout) == (1, "")
        assert "the server's answer to Answers/ExportRows cannot be used: " in done.stderr
        assert "\x1b" not in done.stderr
        with Analyst(liar.address) as analyst, pytest.raises(AnswerRefused):
            analyst.rows("town")
    assert [file for file in files_below(tmp_path) if file.name != "x"] == before


def exported(answers: list[Any]) -> Any:
    """The last message that says what was exported of a period."""
    return next(each for each in reversed(answers) if each.HasField("exported")).exported


def earlier_period(answers: list[Any]) -> None:
    exported(answers).period = "2020-01-01"


def no_digest(answers: list[Any]) -> None:
    exported(answers).digest = b"short"


def told_twice(answers: list[Any]) -> list[Any]:
    return [*answers, answers[-1]]


def not_told(answers: list[Any]) -> list[Any]:
    (first, *others) = [i for i, each in enumerate(answers) if each.HasField("exported")]
    assert others
    return answers[:first] + answers[first + 1 :]


def other_plan(answers: list[Any]) -> None:
    answers[0].plan = surveys.resolve(surveys.from_toml(TOML.replace("town", "city"), "x.toml"))


def odd_name(answers: list[Any]) -> None:
    """A plan that a device reads, but that no server registers: its column would be a path."""
    plan = plan_pb2.Plan.FromString(answers[0].plan)
    plan.survey.attributes[0].name = "../../x"
    answers[0].plan = plan.SerializeToString(deterministic=True)


def no_plan(answers: list[Any]) -> list[Any]:
    return answers[1:]


def plan_again(answers: list[Any]) -> list[Any]:
    return [answers[0], *answers]


def many_rows(answers: list[Any]) -> None:
    answers[1].rows = 1 << 31


def no_columns(answers: list[Any]) -> None:
    del answers[1].columns[:]


def column_twice(answers: list[Any]) -> None:
    answers[1].columns.append(answers[1].columns[0])


def other_attribute(answers: list[Any]) -> None:
    answers[1].columns[0].attribute = "../x"


def other_level(answers: list[Any]) -> None:
    answers[1].columns[0].level = "closed"


def other_map(answers: list[Any]) -> None:
    answers[1].columns[0].map = "shy"


def cut_codes(answers: list[Any]) -> None:
    answers[1].columns[0].codes = answers[1].columns[0].codes[:-1]


def backwards(answers: list[Any]) -> list[Any]:
    return [answers[0], *reversed(answers[1:])]


@pytest.mark.parametrize(
    "change",
    [
        earlier_period,
        no_digest,
        told_twice,
        not_told,
        other_plan,
        odd_name,
        no_plan,
        plan_again,
        many_rows,
        no_columns,
        column_twice,
        other_attribute,
        other_level,
        other_map,
        cut_codes,
        backwards,
    ],
)
def test_rows_that_an_honest_server_does_not_send_write_nothing(
    liar: Liar, analyst: Analyst, tmp_path: Path, change: Callable[[list[Any]], Any]
) -> None:
    with liar.saying("ExportRows", change), pytest.raises(AnswerRefused):
        export(analyst, "town", tmp_path / "rows")
    assert files_below(tmp_path) == []
    assert export(analyst, "town", tmp_path / "rows").rows == 4 * ROWS


def test_rows_that_were_not_asked_for_are_refused(
    liar: Liar, analyst: Analyst, tmp_path: Path
) -> None:
    everything: list[bytes] = []

    def remember(answers: list[Any]) -> None:
        everything.extend(each.SerializeToString() for each in answers)

    with liar.saying("ExportRows", remember):
        export(analyst, "town", tmp_path / "all")

    def all_of_them(answers: list[Any]) -> list[Any]:
        return [type(answers[0]).FromString(each) for each in everything]

    with liar.saying("ExportRows", all_of_them):
        for selection in (
            {"levels": ["open"]},
            {"periods": DAYS[:1]},
            {"first_period": DAYS[1]},
            {"last_period": DAYS[0]},
        ):
            with pytest.raises(AnswerRefused, match="was not asked for"):
                export(analyst, "town", tmp_path / "rows", **selection)  # type: ignore[arg-type]
    assert not (tmp_path / "rows").exists()


def test_an_export_that_continues_another_keeps_to_its_folder(
    liar: Liar, analyst: Analyst, tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    export(analyst, "town", first)
    before = files_below(tmp_path)

    def elsewhere(answers: list[Any]) -> None:
        exported(answers).period = "../first/x"

    with liar.saying("ExportRows", elsewhere), pytest.raises(AnswerRefused):
        export(analyst, "town", second, since=first)
    assert files_below(tmp_path) == before


@pytest.mark.parametrize("name", ["../x", "/x", "a/b", "..", ".hidden", "", "x\x00", "x" * 200])
def test_a_file_of_an_export_lies_in_its_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInput, match="cannot be called"):
        open_folder(tmp_path / "rows").write(name, b"")
    assert files_below(tmp_path) == []


def test_a_manifest_with_other_periods_or_counts_is_none(analyst: Analyst, tmp_path: Path) -> None:
    export(analyst, "town", tmp_path / "rows")
    whole = json.loads((tmp_path / "rows" / NAME).read_text())
    (name, *_) = whole["periods"]
    for change in (
        lambda document: document["periods"].update({"../x": document["periods"][name]}),
        lambda document: document["periods"][name].update(dropped=-1),
        lambda document: document["periods"][name].update(files={"x.parquet": "many"}),
        lambda document: document.update(levels=["closed"]),
        lambda document: document.update(plan="eA=="),
    ):
        changed = json.loads(json.dumps(whole))
        change(changed)
        (tmp_path / "rows" / NAME).write_text(json.dumps(changed))
        with pytest.raises(InvalidInput, match="is no manifest of an export"):
            Manifest.read(open_folder(tmp_path / "rows"))


# --- questions: every field of every answer ----------------------------------------------------

Ask = Callable[[Analyst], object]
ASKS: dict[str, tuple[str, Ask]] = {
    "surveys": ("ListSurveys", lambda a: a.surveys()),
    "reports": ("ShowSurvey", lambda a: a.reports("town")),
    "estimate": ("Estimate", lambda a: a.estimate("town", "colour", simultaneous=True)),
    "top": ("Estimate", lambda a: a.estimate("town", "colour", top=2)),
    "values": ("Estimate", lambda a: a.estimate("town", "colour", values=["red", "=1+1"])),
    "sums": ("Estimate", lambda a: a.sums("town", "colour", [["red", "green"], ["=1+1"]])),
    "mean": ("Estimate", lambda a: a.estimate("town", "age")),
    "set": ("Estimate", lambda a: a.estimate("town", "apps")),
    "sizes": ("Estimate", lambda a: a.set_sizes("town", "apps")),
    "sizes by level": ("EstimateBy", lambda a: a.by_level("town", "apps", sizes=True)),
    "ratings": ("Estimate", lambda a: a.estimate("town", "stars")),
    "forecast": ("Forecast", lambda a: a.forecast("town", "colour", goal=0.01)),
    "by_level": ("EstimateBy", lambda a: a.by_level("town", "colour")),
    "by property": ("EstimateBy", lambda a: a.by_property("town", "colour", "platform")),
    "by_period": ("EstimateBy", lambda a: a.by_period("town", "colour")),
    "top by level": ("EstimateBy", lambda a: a.by_level("town", "colour", top=2)),
    "one level": ("EstimateBy", lambda a: a.by_level("town", "colour", levels=["open"])),
    "one period": ("EstimateBy", lambda a: a.by_period("town", "colour", periods=DAYS[:1])),
    "top ratings": ("Estimate", lambda a: a.estimate("town", "stars", top=1)),
    "compare": (
        "Compare",
        lambda a: a.compare("town", "colour", {"levels": ["open"]}, {"levels": ["strict"]}),
    ),
    "change": ("Change", lambda a: a.change("town", "colour", *DAYS[:2])),
    "distribution": ("Distribution", lambda a: a.distribution("town", "age", bins=5)),
    "cdf": ("Distribution", lambda a: a.cdf("town", "age")),
    "between": ("Distribution", lambda a: a.between("town", "age", 2, 4)),
    "pairs": ("Pairs", lambda a: a.pairs("town", "apps")),
    "words": ("Words", lambda a: a.frequencies_of("town", "word", ["you", "the"])),
    "heavy_hitters": ("Words", lambda a: a.heavy_hitters("town", "word")),
    "crosstab": ("Crosstab", lambda a: a.crosstab("town", "colour", "place")),
    "within": ("CompareGroups", lambda a: a.within("town", "colour", by="place")),
    "compare by": ("CompareGroups", lambda a: a.compare("town", "colour", by="place")),
    "reference": (
        "CompareGroups",
        lambda a: a.compare("town", "age", by="colour", reference="green"),
    ),
    "ols": ("Fit", lambda a: a.ols("town", "age ~ C(colour)")),
    "suspicions": ("Suspicions", lambda a: a.suspicions("town", "place")),
}

OPTIONAL = (
    "change",
    "sums",
    *(name for name, (method, _) in ASKS.items() if method == "EstimateBy"),
)
"""Questions whose answers may lack the last column: the effect of the mix, or the people that would
have told as much."""

FINDABLE = ("hearsay.v1.Answer.Numbers.numbers",)

FREE = {"method", "mechanism", "test", "warning"}
"""Texts that say what a server did: any words that can be printed."""

WORDS = ("../../x", "[link=https://a.example]x[/link]", "nobody", "\x1b]0;owned\x07", "a\u202eb")
"""What no name, label or title of the survey is; the last two are no words to print."""


def strings(message: Message) -> Iterator[tuple[Message, FieldDescriptor, str]]:
    """Every text of a message, in the first of each list: the message, its field, the text."""
    for field, value in fields(message, FieldDescriptor.TYPE_STRING):
        first = list(value)[:1] if field.is_repeated else [value]
        yield from ((message, field, text) for text in first)
    for inner in inside(message):
        yield from strings(inner)


def numbers(message: Message) -> Iterator[tuple[Message, FieldDescriptor]]:
    for field, _ in fields(message, FieldDescriptor.TYPE_DOUBLE):
        yield message, field
    for inner in inside(message):
        yield from numbers(inner)


def lists(message: Message) -> Iterator[tuple[Message, FieldDescriptor]]:
    for field, _ in message.ListFields():
        if field.is_repeated:
            yield message, field
    for inner in inside(message):
        yield from lists(inner)


def fields(message: Message, kind: int) -> list[tuple[FieldDescriptor, Any]]:
    return [(field, value) for field, value in message.ListFields() if field.type == kind]


def inside(message: Message) -> Iterator[Message]:
    """The messages in a message, the first of each list, and all figures."""
    for field, value in fields(message, FieldDescriptor.TYPE_MESSAGE):
        if field.name == "figures":
            yield from value
        else:
            yield from list(value)[:1] if field.is_repeated else [value]


def put(message: Message, field: FieldDescriptor, value: Any) -> None:
    if field.is_repeated:
        getattr(message, field.name)[0] = value
    else:
        setattr(message, field.name, value)


def honest(liar: Liar, method: str, ask: Ask) -> list[Any]:
    """What an honest server answers the question."""
    found: list[Any] = []
    with liar.saying(method, found.extend), Analyst(liar.address) as analyst:
        ask(analyst)
    return found


@contextlib.contextmanager
def refused(liar: Liar, method: str, ask: Ask, what: object) -> Iterator[Callable[..., None]]:
    """Yield what to call with a change of the answers, after which the question is refused."""
    with Analyst(liar.address) as analyst:
        ask(analyst)  # the plan is known from here on

        def refuse(change: Callable[[list[Any]], Any]) -> None:
            with liar.saying(method, change):
                try:
                    ask(analyst)
                except AnswerRefused as error:
                    assert str(error).isprintable()
                else:
                    raise AssertionError(f"{what} was taken")

        yield refuse


@pytest.mark.parametrize("name", ASKS)
def test_words_that_the_survey_lacks_are_refused(liar: Liar, name: str) -> None:
    method, ask = ASKS[name]
    answers = honest(liar, method, ask)
    for place, (_, field, _) in enumerate(strings(answers[0])):
        for words in WORDS:
            if words.isprintable() and (field.name in FREE or name == "surveys"):
                continue  # a list of surveys may have any, and some server may do anything

            def change(messages: list[Any], place: int = place, words: str = words) -> None:
                message, field, _ = list(strings(messages[0]))[place]
                put(message, field, words)

            with refused(liar, method, ask, (field.full_name, words)) as refuse:
                refuse(change)


@pytest.mark.parametrize("name", ASKS)
def test_numbers_that_cannot_be_are_refused(liar: Liar, name: str) -> None:
    method, ask = ASKS[name]
    answers = honest(liar, method, ask)
    unknown = {
        "ratings",
        "top ratings",
        "words",
        "heavy_hitters",
    }  # whose numbers may be nan
    for place, (_, field) in enumerate(numbers(answers[0])):
        for number in (math.nan, math.inf, -math.inf):
            if name == "heavy_hitters" and field.full_name in FINDABLE and number == math.inf:
                continue  # of a length of which no word can be found
            if math.isnan(number) and name in unknown:
                continue

            def change(messages: list[Any], place: int = place, number: float = number) -> None:
                message, field = list(numbers(messages[0]))[place]
                put(message, field, number)

            with refused(liar, method, ask, (field.full_name, number)) as refuse:
                refuse(change)


@pytest.mark.parametrize("name", ASKS)
def test_lists_of_another_length_are_refused(liar: Liar, name: str) -> None:
    method, ask = ASKS[name]
    answers = honest(liar, method, ask)
    free = {"suspicions", "surveys", "pairs", "reports"}
    free |= {"bins"}  # which are as few as the points allow
    free |= {"columns"} if name in OPTIONAL else set()
    free |= {"texts"} if name == "suspicions" else set()  # targets, of which there may be fewer
    for place, (_, field) in enumerate(lists(answers[0])):
        shorter = field.name not in free and name not in ("top", "heavy_hitters")
        for longer in (True, False) if shorter else (True,):
            if field.name in ("cohorts", "targets"):
                continue

            def change(messages: list[Any], place: int = place, longer: bool = longer) -> None:
                message, field = list(lists(messages[0]))[place]
                values = getattr(message, field.name)
                values.append(values[-1]) if longer else values.pop()

            with refused(liar, method, ask, (field.full_name, longer)) as refuse:
                refuse(change)


FIGURES: dict[str, dict[str, Any]] = {
    "none": {},
    "number": {"number": 0.5},
    "count": {"count": 1},
    "text": {"text": "ab"},
    "flag": {"flag": True},
    "numbers": {"numbers": {"numbers": [0.5, 0.5]}},
    "named": {"numbers": {"names": ["a", "b"], "numbers": [0.5, 0.5]}},
    "texts": {"texts": {"texts": ["a", "b"]}},
}
"""A figure of each kind of value."""


@pytest.mark.parametrize("name", ASKS)
def test_figures_of_another_kind_are_refused(liar: Liar, name: str) -> None:
    method, ask = ASKS[name]
    for place, figure in enumerate(getattr(honest(liar, method, ask)[0], "figures", ())):
        kind, named = figure.WhichOneof("value"), figure.name
        many = kind == "numbers" and bool(figure.numbers.names)
        for of, value in FIGURES.items():
            if of in (kind, "named" if many else "") or (of == "numbers" and kind == "numbers"):
                continue
            if of in ("none", OPEN.get(named)):
                continue

            def change(messages: list[Any], place: int = place, value: Any = value) -> None:
                name = messages[0].figures[place].name
                messages[0].figures[place].CopyFrom(answer_pb2.Answer.Figure(name=name, **value))

            with refused(liar, method, ask, (named, of)) as refuse:
                refuse(change)


OPEN = {
    "homogeneity": "number",
    "detectable_difference": "number",
    "step": "number",
    "rate": "number",
    "twice": "text",
    "reached": "text",
}
"""Figures that there may be none of, and what they are else."""


QUESTIONS = [name for name in ASKS if name not in ("surveys", "reports")]
"""Questions that are answered by an `Answer`."""


def numbered(messages: list[Any]) -> None:
    """Number the rows that have texts, and call those by texts that have numbers."""
    for level in messages[0].tables[0].index:
        rows = len(level.places) or len(level.labels) or len(level.numbers)
        texts = not level.numbers
        for name in ("labels", "places", "numbers"):
            level.ClearField(name)
        labels = level.numbers if texts else level.labels
        labels.extend(range(rows) if texts else [f"row {row:03}" for row in range(rows)])


def one_end_by_words(messages: list[Any]) -> None:
    right = messages[0].tables[0].index[1]
    right.labels.extend(f"row {row:03}" for row in range(len(right.numbers)))
    right.ClearField("numbers")


def no_test(messages: list[Any]) -> None:
    messages[0].tables[1].index[0].ClearField("labels")
    for column in messages[0].tables[1].columns:
        column.ClearField("numbers")


def group_that_is_none(messages: list[Any]) -> None:
    messages[0].parts.add(name="ios", reports=3)


def note_of_nobody(messages: list[Any]) -> None:
    messages[0].notes.add(part="nobody", code="curve")


def cohort_of_nobody(messages: list[Any]) -> None:
    messages[0].cohorts.add(revision=b"x" * 99, level="nobody's", period="never", epsilon=1)


def left_out(messages: list[Any]) -> None:
    messages[0].tables[-1].left_out += 1


def left_out_of_the_first(messages: list[Any]) -> None:
    messages[0].tables[0].left_out += 2  # one of each of two groups


def no_mean_of_a_group(messages: list[Any]) -> None:
    mean = messages[0].tables[1]
    for level in mean.index:
        del (level.places or level.labels)[-1]
    for column in mean.columns:
        del column.numbers[-1]


def another_statistic(messages: list[Any]) -> None:
    """Say that shares are means, and means shares."""
    is_share = messages[0].statistic in ("frequency", "share", "share who rated", "rating")
    messages[0].statistic = "mean" if is_share else "frequency"
    for column in messages[0].tables[0].columns:
        if column.unit in (answer_pb2.Answer.SHARE, answer_pb2.Answer.OWN):
            column.unit = answer_pb2.Answer.OWN if is_share else answer_pb2.Answer.SHARE


def one_shift(messages: list[Any]) -> None:
    table = messages[0].tables[0]
    rows = len(table.columns[0].numbers)
    column = table.columns.add(name="shift_down", role="MOVED", unit=table.columns[0].unit)
    column.numbers.extend([0.1] * rows)


def both_shifts(messages: list[Any]) -> None:
    one_shift(messages)
    column = messages[0].tables[0].columns[-1]
    messages[0].tables[0].columns.add().CopyFrom(column)
    messages[0].tables[0].columns[-1].name = "shift_up"


def another_range(messages: list[Any]) -> None:
    messages[0].tables[0].index[0].labels[0] = "2 to 9"


def long_test(messages: list[Any]) -> None:
    messages[0].tables[0].index[1].labels[0] = "long " * 1_000


def out_of_order(messages: list[Any]) -> None:
    estimates = messages[0].tables[0].columns[0]
    estimates.numbers[:] = sorted(estimates.numbers)


def another_end(messages: list[Any]) -> None:
    messages[0].tables[0].index[-1].numbers[-1] += 0.5


def beyond(messages: list[Any]) -> None:
    """Have the intervals of the table end beyond what can be."""
    for column in messages[0].tables[-1].columns:
        if column.role == answer_pb2.Answer.HIGH:
            column.numbers[0] = 99


def another_step(messages: list[Any]) -> None:
    messages[0].figures[0].number = 0.5


def another_key(messages: list[Any]) -> None:
    messages[0].tables[1].index[0].labels[0] = "nobody"


def another_group(messages: list[Any]) -> None:
    """Tell of a group that the survey has, and that was not asked for."""
    name = "strict" if messages[0].parts[0].name == "open" else DAYS[1]
    messages[0].parts[0].name = name
    messages[0].tables[0].index[0].labels[0] = name


LIES: dict[str, tuple[Callable[[list[Any]], None], list[str]]] = {
    "numbered": (numbered, QUESTIONS),
    "one end by words": (one_end_by_words, ["distribution"]),
    "no test": (no_test, ["crosstab"]),
    "statistic": (another_statistic, [name for name in QUESTIONS if name != "suspicions"]),
    "one shift": (one_shift, QUESTIONS),
    "both shifts": (both_shifts, QUESTIONS),
    "range": (another_range, ["between"]),
    "test": (long_test, ["suspicions"]),
    "group": (group_that_is_none, QUESTIONS),
    "note": (note_of_nobody, QUESTIONS),
    "cohort": (cohort_of_nobody, QUESTIONS),
    "left out": (left_out, [name for name in QUESTIONS if name != "heavy_hitters"]),
    "left out of the first": (
        left_out_of_the_first,
        ["estimate", "by_level", "sizes", "sizes by level", "ratings"],
    ),
    "no mean": (no_mean_of_a_group, ["sizes by level"]),
    "order": (out_of_order, ["top", "top by level", "pairs", "heavy_hitters"]),
    "end": (another_end, ["distribution", "cdf"]),
    "beyond": (
        beyond,
        [
            name
            for name in QUESTIONS
            if name not in ("compare", "change", "within", "crosstab", "ols", "suspicions")
        ],
    ),
    "step": (another_step, ["distribution", "cdf", "between"]),
    "key": (another_key, ["ratings", "top ratings"]),
    "another group": (another_group, ["one level", "one period"]),
}
"""Changes of an answer, and the questions that they are of."""


@pytest.mark.parametrize("lie", LIES)
def test_what_no_honest_server_says_is_refused(liar: Liar, lie: str) -> None:
    change, names = LIES[lie]
    for name in names:
        method, ask = ASKS[name]
        with refused(liar, method, ask, (lie, name)) as refuse:
            refuse(change)


OTHERS: list[tuple[dict[str, Any], str, str]] = [
    ({"levels": ["open"]}, "level", "strict"),
    ({"maps": [""]}, "map", "mine"),
    ({"periods": DAYS[:1]}, "period", DAYS[1]),
    ({"first_period": DAYS[1]}, "period", DAYS[0]),
    ({"last_period": DAYS[0]}, "period", DAYS[1]),
]
"""What a question selects, and what the survey has besides."""


@pytest.mark.parametrize(("selection", "field", "other"), OTHERS)
def test_cohorts_that_were_not_asked_for_are_refused(
    liar: Liar, selection: dict[str, Any], field: str, other: str
) -> None:
    def elsewhere(answers: list[Any]) -> None:
        setattr(answers[0].cohorts[-1], field, other)

    asks: dict[str, Ask] = {
        "Estimate": lambda a: a.estimate("town", "mood", **selection),
        "EstimateBy": lambda a: a.by_level("town", "mood", **selection),
    }
    for method, ask in asks.items():
        with refused(liar, method, ask, (field, other)) as refuse:
            refuse(elsewhere)


def test_only_estimates_and_words_tell_cohorts(liar: Liar, collected: Collected) -> None:
    def cohort(answers: list[Any]) -> None:
        told = {"level": "open", "period": DAYS[0], "epsilon": 16, "mechanism": "krr"}
        answers[0].cohorts.add(revision=collected.plan.revision, **told)

    for name in ("compare", "change", "distribution", "pairs", "crosstab", "within", "ols"):
        method, ask = ASKS[name]
        with refused(liar, method, ask, name) as refuse:
            refuse(cohort)


def differences(answers: list[Any]) -> Any:
    (found,) = [table for table in answers[0].tables if table.name == "differences"]
    return found


def test_groups_are_all_compared(liar: Liar) -> None:
    def none(answers: list[Any]) -> None:
        table = differences(answers)
        for level in table.index:
            level.ClearField("labels")
            level.ClearField("places")
        for column in table.columns:
            column.ClearField("numbers")

    def no_number(answers: list[Any]) -> None:
        differences(answers).columns[-3].numbers[-1] = math.nan

    for name in ("within", "compare by", "reference"):
        method, ask = ASKS[name]
        with refused(liar, method, ask, name) as refuse:
            refuse(none)
            refuse(no_number)


@pytest.mark.filterwarnings("ignore:too few people are known to be in odd")
def test_only_differences_of_groups_that_are_unclear_are_missing(liar: Liar) -> None:
    def clear(answers: list[Any]) -> None:
        answers[0].ClearField("notes")

    def another(answers: list[Any]) -> None:
        answers[0].notes[0].given[0].texts.texts[0] = "good"

    def nobody(answers: list[Any]) -> None:
        answers[0].notes[0].given[0].texts.texts.append("nobody")

    def one_more(answers: list[Any]) -> None:
        differences(answers).columns[2].numbers[0] = math.nan

    with refused(
        liar, "CompareGroups", lambda a: a.compare("town", "colour", by="mood"), "unclear"
    ) as refuse:
        for change in (clear, another, nobody, one_more):
            refuse(change)


NOTHING = Answer("estimate", "town", (), "frequency", ())
NOTES: list[tuple[str, str, dict[str, Any], str]] = [
    ("suspicions", "few_for_test", {"test": "norm_sub_gap", "levels": ["open"]}, "levels"),
    ("compare by", "groups_unclear", {"groups": ["here"]}, "groups"),
    ("change", "mix_changed", {"label": "red", "moved": 0.5}, "label"),
    ("change", "unfinished", {"periods": [DAYS[1]]}, "periods"),
    ("pairs", "no_pairs", {"levels": ["strict"]}, "levels"),
    ("ratings", "ratings_unknown", {"keys": ["food"]}, "keys"),
    ("by property", "small_groups", {"least": 5, "groups": ["web (3 reports)"]}, "groups"),
    (
        "compare",
        "share_moved",
        {"kind": "level", "name": "open", "first": 0.2, "second": 0.5},
        "name",
    ),
    (
        "estimate",
        "same_within",
        {"properties": ["platform"], "within": ["platform"]},
        "within",
    ),
]
"""A question, a note of it, and the parameter that names something."""


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("name", "code", "given", "parameter"), NOTES)
def test_notes_name_what_the_question_has(
    liar: Liar, name: str, code: str, given: dict[str, Any], parameter: str
) -> None:
    def noting(given: dict[str, Any]) -> Callable[[list[Any]], None]:
        (message,) = wire.to_message(replace(NOTHING, notes=(Note(code, given),))).notes

        def change(answers: list[Any]) -> None:
            answers[0].notes.append(message)

        return change

    method, ask = ASKS[name]
    with liar.saying(method, noting(given)), Analyst(liar.address) as analyst:
        ask(analyst)
    told = given[parameter]
    others: list[Any] = ["nobody (3 reports)", "nobody"]
    if isinstance(told, list):
        others = [[*told, *told], *([*told, other] for other in others)]
    with refused(liar, method, ask, (name, code)) as refuse:
        for other in others:
            refuse(noting({**given, parameter: other}))
    with refused(liar, *ASKS["ols"], code) as refuse:
        refuse(noting(given))


def test_notes_that_name_anything_are_checked() -> None:
    """But for those of margins' rows, which are called by their values."""
    for code, caution in cautions.CAUTIONS.items():
        declared = inspect.signature(caution).parameters.values()
        texts = {each.name for each in declared if each.annotation in (str, Sequence[str])}
        _, checked = notes.NAMES.get(code, (None, {}))
        assert texts == {*checked} or code == "joined"


def test_a_group_comes_once(liar: Liar) -> None:
    def twice(answers: list[Any]) -> None:
        answers[0].parts.append(answers[0].parts[0])

    for method, ask in (ASKS["by_level"], ASKS["by_period"]):
        with refused(liar, method, ask, "a group that comes twice") as refuse:
            refuse(twice)


def test_a_survey_that_was_created_anew_is_asked_by_its_new_plan(
    liar: Liar, collected: Collected, analyst: Analyst
) -> None:
    analyst.estimate("town", "colour").to_frame()
    other = surveys.resolve(surveys.from_toml(TOML.replace('"red"', '"pink"'), "x.toml"))
    kept = analyst._calls._plans  # type: ignore[attr-defined]
    kept["town"] = parse(other)
    assert list(analyst.estimate("town", "colour").to_frame().index) == COLOURS
    assert kept["town"].revision == collected.plan.revision
