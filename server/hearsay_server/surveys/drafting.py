"""Write a guessed survey as a TOML file, in which each guess has a comment."""

import json
import textwrap
from collections.abc import Iterator

from hearsay.plans.texts import check_text
from hearsay_server.surveys.guessing import RARE, Draft, Guess, listed
from ldp import InvalidInput

LEVELS = {"strict": 0.5, "standard": 1.0}
"""Epsilon of a record at the levels of a draft."""

_HEAD = """\
# Guessed from {source}: read every line before you register it.
#   hearsay survey explain FILE.toml          what it promises, and which errors to expect
#   hearsay survey check FILE.toml DATA.csv   whether a table's cells fit
# Values and ranges come from the rows: whoever sees this file learns that somebody had each value.
# Where the rows are private, list what people may answer instead of what they answered.
name = {name}
title = {title}
# period = "P1M"  # where people answer again: one record of a person in each month
budget = "auto"  # what predicts the least error; "split" where records are to tell of two
# questions together, or a model is to learn from them

[levels]  # epsilon of one whole record, smaller is more private; a person chooses one
{levels}
"""


def toml(draft: Draft) -> str:
    """Return the file's text."""
    head = _HEAD.format(
        source=_spelled(draft.source),
        name=_string(draft.name),
        title=_string(title_of(draft.name)),
        levels="\n".join(f"{name} = {epsilon}" for name, epsilon in LEVELS.items()),
    )
    parts = [head, *map(_attribute, draft.asked)]
    if draft.left_out:
        parts.append("\n".join(_left_out(draft)) + "\n")
    return "\n".join(parts)


def title_of(heading: str) -> str:
    """Return a column's or a file's name as a title for people."""
    text = " ".join(heading.replace("_", " ").split())
    return text[:1].upper() + text[1:]


def told(draft: Draft) -> list[tuple[str, str, list[str]]]:
    """Return of each column what it is called, what it was taken for and why, and what is to be
    known of it."""
    found = []
    for each in draft.guesses:
        notes = list(each.noted)
        if each.blanks:
            notes.append(f"{each.blanks:,} of {draft.rows:,} cells are blank")
        if each.rare:
            notes.append(f"fewer than {RARE} rows each: {listed(each.rare)}")
        found.append((_called(each), each.why if each.kind else f"left out: {each.why}", notes))
    return found


def lines(draft: Draft) -> Iterator[str]:
    """Yield what is `told` as lines."""
    for called, why, notes in told(draft):
        yield f"{called}: {why}"
        yield from (f"  {note}" for note in notes)


def warnings(draft: Draft) -> Iterator[str]:
    """Yield what holds for several columns."""
    if any(each.rare for each in draft.asked):
        yield (
            f"Values with fewer than {RARE} rows are listed. Whoever sees the survey learns that "
            "somebody has them. Where the rows are private, list what people may answer instead."
        )
    if any(each.blanks for each in draft.asked):
        yield (
            "A blank cell is no answer: it is withheld. That somebody did not answer is visible. "
            'Where that tells something, have them answer, and make "no answer" a value.'
        )


def _attribute(guess: Guess) -> str:
    comment = textwrap.fill(guess.why, 98, initial_indent="# ", subsequent_indent="# ")
    keys = "\n".join(f"{name} = {_value(value)}" for name, value in guess.keys.items())
    title = title_of(guess.heading) or title_of(guess.name)
    return (
        f"{comment}\n[[attributes]]\nname = {_string(guess.name)}\ntitle = {_string(title)}\n"
        f"[attributes.{guess.kind}]\n{keys}\n"
    )


def _left_out(draft: Draft) -> Iterator[str]:
    yield "# Left out:"
    for each in draft.left_out:
        yield textwrap.fill(
            f"{_called(each)}: {each.why}", 98, initial_indent="#   ", subsequent_indent="#     "
        )


def _called(guess: Guess) -> str:
    return _spelled(guess.heading) if guess.heading else guess.name


def _spelled(text: str) -> str:
    """Return a text that may stand in a comment and on a terminal: as it is, or escaped."""
    try:
        check_text("title", text)
    except InvalidInput:
        return ascii(text)
    return text


def _value(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_string, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.15g}" if value == float(f"{value:.15g}") else repr(value)
    return str(value)


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # a string of TOML, where nothing is unseen
