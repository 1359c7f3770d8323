"""Words, from a device's answers to what an analyst is told."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from collected import DAYS, Collected, batch, collected_from
from command import hearsay
from scipy.stats import norm

from hearsay import Analyst, InvalidInput
from hearsay.plans.kinds import Categorical, Strings
from hearsay.plans.plan import parse
from hearsay.v1 import analyst_pb2
from hearsay_server.answers import words as answers
from hearsay_server.commands import codegen, codegen_typescript, words
from hearsay_server.demo import play, sources
from hearsay_server.storage.selection import resolve
from hearsay_server.surveys import explain_words
from hearsay_server.surveys import survey as surveys
from hearsay_server.surveys.describe import describe
from ldp import RAPPOR, Coins, PrefixHashing

ALPHABET = "abcdefghijklmnopqrstuvwxyz'"
TOML = f"""
name = "terms"
title = "What do you search for?"
period = "P1D"
[levels]
strict = 6.0
open = 9.0
[[attributes]]
name = "word"
title = "Which word did you search for first?"
[attributes.strings]
alphabet = "{ALPHABET}"
longest = 3
[[attributes]]
name = "known"
[attributes.strings]
alphabet = "{ALPHABET}"
longest = 8
candidates = ["you", "the", "it's"]
[[attributes]]
name = "kept"
mechanism = "rappor"
memo = 2
[attributes.strings]
alphabet = "{ALPHABET}"
longest = 8
candidates = ["you", "the", "it's"]
"""
ROWS = 3000
WORDS = ["you", "the", "i'm", "how"]
SHARES = [0.4, 0.3, 0.2, 0.1]


def people(plan: Any, seed: int) -> dict[str, Any]:
    chosen = np.random.default_rng(seed).choice(4, ROWS, p=SHARES)
    spelled = plan.attributes["word"].domain.spelling.numbers(WORDS)
    short = plan.attributes["known"].domain.spelling.numbers(["you", "the", "it's", "other"])
    words = np.array(["you", "the", "it's", "other"])
    return {"word": spelled[chosen], "known": short[chosen], "kept": words[chosen]}


@pytest.fixture(scope="module")
def analyst(address: str) -> Iterator[Analyst]:
    with Analyst(address) as found:
        yield found


@pytest.fixture(scope="module")
def collected(address: str, analyst: Analyst) -> Collected:
    return collected_from(people, TOML, address, analyst)


def near(table: Any, truth: dict[str, float]) -> None:
    for label, share in truth.items():
        row = table.loc[label]
        assert abs(row["estimate"] - share) < 4 * row["standard_error"], label
        assert row["low"] <= max(0, row["estimate"]) <= row["high"]


def test_the_plan_has_a_mechanism_for_words(collected: Collected) -> None:
    for level in collected.plan.levels.values():
        word, known, kept = (level.mechanisms[name] for name in ("word", "known", "kept"))
        assert isinstance(word, PrefixHashing)
        assert word.lengths == (3, 3)
        assert isinstance(known, PrefixHashing)
        assert known.lengths == (8, 8)
        assert isinstance(kept, RAPPOR)


def test_shares_of_words_by_rappor(collected: Collected) -> None:
    table = collected.analyst.frequencies_of("terms", "kept").to_frame()
    near(table, {"you": 0.4, "the": 0.3, "it's": 0.2})
    assert table.attrs["repeats"] == pytest.approx(2)


def test_frequent_words_are_found(collected: Collected) -> None:
    table = collected.analyst.heavy_hitters("terms", "word").to_frame()
    near(table, dict(zip(WORDS, SHARES, strict=True)))
    assert list(table.index) == WORDS
    assert len(table.attrs["findable"]) == 3
    assert table.attrs["repeats"] == pytest.approx(2)
    assert not table.attrs["simultaneous"]


def test_intervals_of_the_largest_estimates_are_those_of_all_words(collected: Collected) -> None:
    every, most = (collected.analyst.heavy_hitters("terms", "word", top=top) for top in (4, 1))
    assert most.simultaneous and not every.simultaneous
    assert most.to_frame().index == ["you"]
    row, ordinary = (each.to_frame().loc["you"] for each in (most, every))
    wider = (row["high"] - row["low"]) / (ordinary["high"] - ordinary["low"])
    assert wider == pytest.approx(norm.isf(0.05 / 8) / norm.isf(0.05 / 2), rel=0.05)


def test_shares_of_listed_words(collected: Collected) -> None:
    truth = {"you": 0.4, "the": 0.3, "it's": 0.2}
    near(collected.analyst.frequencies_of("terms", "known").to_frame(), truth)
    table = collected.analyst.frequencies_of("terms", "word", ["how", "ten"]).to_frame()
    assert list(table.index) == ["how", "ten"]
    near(table, {"how": 0.1, "ten": 0.0})
    near(collected.analyst.frequencies_of("terms", "kept", ["other"]).to_frame(), {"other": 0.1})
    frequent = collected.analyst.heavy_hitters("terms", "known", top=2)
    near(frequent.to_frame(), {"you": 0.4, "the": 0.3})
    assert frequent.simultaneous and frequent.table().left_out == 1


def asked(collected: Collected, *arguments: object, code: int = 0) -> str:
    view, *given = arguments
    done = hearsay("ask", view, "terms", *given, "--target", collected.address, COLUMNS="200")
    assert done.returncode == code, done.stderr
    return done.stdout if not code else done.stderr


def test_words_at_the_command_line(collected: Collected, tmp_path: Path) -> None:
    shown = asked(collected, "words", "word", "--top", 3)
    assert "Which word did you search for first?" in shown
    assert "1 more rows are not shown" in shown
    assert "With probability 0.95 every word of the answer is somebody's." in shown
    file = tmp_path / "words.txt"
    file.write_text("you\n\n i'm \n", encoding="utf-8")
    document = json.loads(asked(collected, "words", "word", "--candidates", file, "--json"))
    assert document["tables"]["rows"]["index"]["word"] == ["you", "i'm"]
    assert document["statistic"] == "share"
    rows = asked(collected, "words", "word", "--csv", "--plot", tmp_path / "words.png")
    assert rows.splitlines()[1].startswith("word,you,0.")
    assert (tmp_path / "words.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "content", "reason"),
    [
        ("words word --candidates FILE", "what?", "written in the alphabet .* got 'what.' with"),
        ("words word --candidates FILE", "abcde", "words must have 1 to 3 letters, got 'abcde'"),
        ("words word --candidates FILE", "you\nyou", "words must differ, got 'you' twice"),
        ("words word --candidates FILE", " \n", "candidates are words, one a line, got none"),
        ("words word --candidates none", "", "cannot read none"),
        ("words word --top 0", "", "top must be >= 1"),
        ("words word --period 2001-01-01", "", "there are no such reports"),
        ("words word --period today", "", "today"),
        ("words word --confidence 1", "", "confidence must lie strictly between"),
        ("estimate word", "", "'word' is answered in words: ask for those that are frequent"),
        ("distribution word", "", "'word' is answered in words"),
        ("compare word level=strict,open", "", "'word' is answered in words"),
        ("pairs word", "", "it has no pairs"),
        ("suspicions word", "", "the tests are for one of some values"),
        ("joint word known", "", "word"),
    ],
)
def test_what_cannot_be_asked_of_words_is_refused(
    collected: Collected, tmp_path: Path, arguments: str, content: str, reason: str
) -> None:
    file = tmp_path / "words.txt"
    file.write_text(content, encoding="utf-8")
    given = [file if each == "FILE" else each for each in arguments.split()]
    assert re.search(reason, asked(collected, *given, code=1))


def test_a_query_leaves_words_to_the_question_about_them(collected: Collected) -> None:
    refused = hearsay("query", "terms", "--target", collected.address)
    assert refused.returncode == 1
    said = "'terms' asks for words, which have no estimates: hearsay ask words terms word"
    assert said in refused.stderr


def test_questions_of_an_analyst_about_words_are_checked(collected: Collected) -> None:
    analyst = collected.analyst
    with pytest.raises(InvalidInput, match="the survey lists no words of 'word'"):
        analyst.frequencies_of("terms", "word").to_frame()
    with pytest.raises(InvalidInput, match="words must be a list of words"):
        analyst.frequencies_of("terms", "word", "you").to_frame()
    with pytest.raises(InvalidInput, match="top must be >= 1"):
        analyst.heavy_hitters("terms", "word", top=0).to_frame()
    with pytest.raises(InvalidInput, match="no attribute 'other'"):
        analyst.heavy_hitters("terms", "other").to_frame()
    assert analyst.attributes("terms").loc["known", "values"] == ("you", "the", "it's")
    assert analyst.attributes("terms").loc["word", "kind"] == "strings"


def test_the_words_found_make_a_survey(collected: Collected, tmp_path: Path) -> None:
    file = tmp_path / "top.toml"
    command = ["survey", "words", "terms", "word", "top", "--top", 3, "--out", file]
    done = hearsay(*command, "--target", collected.address)
    assert done.returncode == 0, done.stderr
    again = hearsay(*command, "--target", collected.address)
    assert "top.toml exists: give another name, or remove it first" in again.stderr
    made = parse(surveys.resolve(surveys.from_file(file)))
    assert made.attributes["word"].domain == Categorical(("you", "the", "i'm", "other"))
    assert (made.survey, made.period) == ("top", "P1D")
    assert {name: level.epsilon for name, level in made.levels.items()} == {
        "strict": 6.0,
        "open": 9.0,
    }
    taken = words.toml(collected.plan, "word", "top", ["other", 'a"b'])
    assert parse(surveys.resolve(surveys.from_toml(taken, "test"))).attributes[
        "word"
    ].domain == Categorical(("other", 'a"b', "any other"))


def test_modules_of_both_languages_have_words_as_text() -> None:
    frozen = surveys.resolve(surveys.from_toml(TOML, "test"))
    python = codegen.module(frozen)
    compile(python, "terms.py", "exec")
    assert "word: str | None = None" in python
    assert "a word of 1 to 3 letters of abc" in python
    assert "readonly word?: string | undefined" in codegen_typescript.module(frozen)


def test_a_survey_explains_which_words_will_be_found() -> None:
    text = TOML.replace("longest = 3", "longest = 12")
    told = explain_words.lines(parse(surveys.resolve(surveys.from_toml(text, "test"))), 100_000)
    assert "words of up to 3 letters" in told[0]
    assert "from 1 period: " in told[0]
    assert "from 3 periods: " in told[0]
    assert "the shares of 3 listed words" in told[2]


def test_a_report_of_a_word_is_described(collected: Collected) -> None:
    mechanisms, attributes = collected.plan.levels["open"].mechanisms, collected.plan.attributes
    word = attributes["word"].domain
    code = mechanisms["word"].encode(mechanisms["word"].randomize_many([1], Coins()))
    assert "of all beginnings of 3 letters" in describe(word, mechanisms["word"], code)
    kept = mechanisms["kept"].encode(mechanisms["kept"].randomize_many(["you"], Coins()))
    said = describe(attributes["kept"].domain, mechanisms["kept"], kept)
    assert " bits are set, by the hash functions of group " in said


def test_a_demo_shows_the_words_that_are_found(collected: Collected) -> None:
    word = collected.plan.attributes["word"].domain
    assert isinstance(word, Strings)
    assert sources._answer(word, " You ") == "You"
    found = play._ask_words(collected.analyst, "terms", "word", word, [" You ", *WORDS])
    assert [each.label for each in found] == WORDS
    truths = {each.label: each.truth for each in found}
    assert truths["you"] == pytest.approx(2 / (len(WORDS) + 1))
    known = collected.plan.attributes["known"].domain
    assert isinstance(known, Strings)
    assert len(play._ask_words(collected.analyst, "terms", "known", known, WORDS)) == 3


def test_only_the_reports_of_the_groups_and_levels_that_are_selected_are_read() -> None:
    text = TOML + '[[properties]]\nname = "platform"\nvalues = ["ios", "web"]\n'
    plan = parse(surveys.resolve(surveys.from_toml(text, "test")))
    batches = []
    for level, platform in (("strict", "ios"), ("open", "ios"), ("open", "web"), ("open", "")):
        made = batch(plan, level, DAYS[0], {"word": people(plan, 1)["word"][:10]}, 1)
        made.properties.append(platform)
        batches.append(made)
    selection = analyst_pb2.Selection(levels=["open"])
    selection.where.add(property="platform", values=["ios", ""])
    selected = resolve(plan, selection, "word")
    found = answers.collected(plan, "word", selected, [batches])
    assert {name: len(codes) for name, codes in found.items()} == {"open": 120}
    everything = resolve(plan, analyst_pb2.Selection(), "word")
    found = answers.collected(plan, "word", everything, [batches])
    assert {name: len(codes) for name, codes in found.items()} == {"strict": 60, "open": 180}


def test_rows_have_the_reports_of_words_as_bytes(collected: Collected, tmp_path: Path) -> None:
    rows = collected.analyst.rows("terms", levels=["open"], periods=[DAYS[0]])
    assert len(rows) == ROWS
    plan = parse(rows.attrs["plan"])
    mechanism = plan.levels["open"].mechanisms["word"]
    codes = mechanism.decode(b"".join(map(bytes, rows["word"])), ROWS)
    assert 0.1 < np.mean(mechanism.evidence(codes, 25 | 15 << 5 | 21 << 10)) < 0.5  # "you"
    command = ["export", "terms", "--to", tmp_path / "rows", "--target", collected.address]
    assert hearsay(*command).returncode == 0
