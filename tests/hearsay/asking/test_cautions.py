"""Each caution has its words for what it is given, and nothing else makes one."""

import inspect
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from hearsay import InvalidInput
from hearsay.asking import Note, cautions, wire
from hearsay.asking.answer import Answer, Column, Level, Subject, Table
from hearsay.v1 import answer_pb2

GIVEN: Mapping[Any, Any] = {
    cautions.Pooled: "levels",
    cautions.Chosen: "map",
    cautions.Tests: "norm_sub_gap",
    str: "some",
    bool: True,
    int: 3,
    float: 0.25,
    Sequence[str]: ["one", "other"],
    Sequence[float]: [0.5, 2.0],
}


def given(code: str) -> dict[str, Any]:
    declared = inspect.signature(cautions.CAUTIONS[code]).parameters
    return {name: GIVEN[each.annotation] for name, each in declared.items()}


def sent(*notes: answer_pb2.Answer.Note) -> tuple[Note, ...]:
    """The notes of an answer with these in its message."""
    table = Table(
        "rows", (Level("how", ["foot"]),), (Column("estimate", "estimate", "share", [1]),)
    )
    message = wire.to_message(Answer("estimate", "s", (Subject("how"),), "frequency", (table,)))
    message.notes.extend(notes)
    return wire.from_message(message).notes


@pytest.mark.parametrize("code", cautions.CAUTIONS)
def test_a_caution_is_the_same_there_and_back(code: str) -> None:
    note = Note(code, given(code), "strict")
    (message,) = wire.to_message(Answer("estimate", "s", (), "frequency", (), notes=(note,))).notes
    assert message.words == note.words
    assert not re.search(r"[{}]|\s\s|^\s|^$", note.words)
    assert sent(message) == (note,)
    for value in given(code).values():
        texts = [value] if isinstance(value, str) else value if isinstance(value, list) else []
        assert all(text in note.words for text in texts if isinstance(text, str))


def test_words_of_others_are_not_shown() -> None:
    message = answer_pb2.Answer.Note(code="curve", words="all is well")
    (note,) = sent(message)
    assert note.words == cautions.curve()


@pytest.mark.parametrize(
    ("code", "figures", "said"),
    [
        ("alarm", {}, "'alarm' is no caution of this version"),
        ("__class__", {}, "is no caution"),
        ("curve", {"at": {"text": "x"}}, "curve is given"),
        ("no_pairs", {}, "no_pairs is given"),
        ("no_pairs", {"levels": {"text": "strict"}}, "cannot be given 'strict'"),
        ("no_pairs", {"levels": {"numbers": {"numbers": [1.0]}}}, "cannot be given '1.0'"),
        ("rows_dropped", {"batches": {"text": "3"}}, "cannot be given '3'"),
        ("rows_dropped", {"batches": {"number": math.inf}}, "cannot be given 'inf'"),
        ("rows_dropped", {"batches": {"number": math.nan}}, "cannot be given 'nan'"),
        ("rows_dropped", {"batches": {"number": 0.5}}, "cannot be given '0.5'"),
        ("rows_dropped", {"batches": {"flag": True}}, "cannot be given 'True'"),
        ("rows_dropped", {"batches": {}}, "cannot be given 'None'"),
        ("groups_not_tested", {"groups": {"text": "words of a server"}}, "cannot be given 'words"),
        ("mean_size_alone", {"of_all": {"count": 1}}, "cannot be given '1'"),
    ],
)
def test_what_a_caution_cannot_be_given_is_refused(
    code: str, figures: Mapping[str, Any], said: str
) -> None:
    each = [answer_pb2.Answer.Figure(name=name, **value) for name, value in figures.items()]
    with pytest.raises(InvalidInput, match=said):
        sent(answer_pb2.Answer.Note(code=code, given=each))


def test_a_caution_is_given_by_name() -> None:
    with pytest.raises(TypeError, match="by name"):
        Note.of(cautions.rows_dropped, 3)
    assert Note.of(cautions.rows_dropped, batches=3).words.startswith("the retention has dropped")


def test_every_caution_is_noted_somewhere() -> None:
    folder = Path(__file__).parents[3] / "server/hearsay_server"
    source = "".join(file.read_text() for file in folder.rglob("*.py"))
    unused = [code for code in cautions.CAUTIONS if f"cautions.{code}" not in source]
    assert not unused
    declared = {
        name
        for name, each in vars(cautions).items()
        if inspect.isfunction(each) and each.__module__ == cautions.__name__
    }
    assert declared - {"checked", "_as"} == {*cautions.CAUTIONS}
