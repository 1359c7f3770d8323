"""Whatever an app does, the ledger spends what leaves: against a naive account of it."""

import random
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest
from people import person

from hearsay import Caps, Client, Person
from hearsay.testing import RecordingTransport
from hearsay_server.surveys import survey as surveys
from support import Calendar, new_client

TOML = """
name = "life"
period = "P1D"
budget = "{budget}"
[levels]
strict = 0.5
standard = 1.0
[[attributes]]
name = "one"
[attributes.categorical]
values = ["a", "b", "c"]
[[attributes]]
name = "two"
weight = 2.0
[attributes.numeric]
low = 0
high = 1
[[attributes]]
name = "three"
[attributes.categorical]
values = ["x", "y"]
"""
ANSWERS: dict[str, object] = {"one": "a", "two": 0.5, "three": "y"}
PEOPLE = ["", "ann", "bob", "carl"]


@pytest.mark.parametrize("budget", ["split", "sample"])
@pytest.mark.parametrize("life", [None, 4.0])
def test_what_was_spent_is_what_left_whatever_is_recorded(
    file: Path, budget: str, life: float | None
) -> None:
    toml = TOML.format(budget=budget)
    transport = RecordingTransport(surveys.resolve(surveys.from_toml(toml, "life.toml")))
    calendar, chance = Calendar(-50), random.Random(7)
    taken: Counter[tuple[str, int, str]] = Counter()
    day = 0

    def opened() -> Client:
        level = chance.choice(["strict", "standard"])
        caps = Caps(life=life)
        return new_client(transport, "life", level=level, ledger=file, caps=caps, clock=calendar)

    def whoever(name: str) -> Person:
        return person(client, name, client.level) if name else client

    client = opened()
    assert client.wait_ready()
    for _ in range(400):
        what = chance.random()
        if what < 0.05:
            client.close()
            client = opened()
        elif what < 0.12:
            calendar.pass_days(1)
            day += 1
        else:
            name = chance.choice(PEOPLE)
            asked = chance.sample(list(ANSWERS), chance.randint(1, 3))
            answers = {attribute: ANSWERS[attribute] for attribute in asked}
            recorded = whoever(name).record(**answers)
            taken.update((name, day, attribute) for attribute in recorded.taken)
    assert client.flush()
    spendings = [whoever(name).spendings() for name in PEOPLE]
    assert client.counters["spent"] > 0
    client.close()

    assert set(taken.values()) == {1}  # once per person, day and attribute
    left: Counter[str] = Counter()
    spent: dict[str, Fraction] = dict.fromkeys(ANSWERS, Fraction(0))
    for batch in {batch.id: batch for batch in transport.batches}.values():
        for column in batch.columns:
            mechanism = transport.plan.level(column.level).mechanisms[column.attribute]
            rows = sum(map(int.bit_count, column.present)) if column.present else batch.rows
            left[column.attribute] += rows
            spent[column.attribute] += rows * Fraction(mechanism.epsilon)
    assert left == Counter(name for _, _, name in taken.elements())
    for number, name in enumerate(ANSWERS):
        of_all = [spending[number] for spending in spendings]
        assert {each.attribute for each in of_all} == {name}
        assert sum(each.reports for each in of_all) == left[name]
        assert sum(each.life for each in of_all) == pytest.approx(float(spent[name]), rel=1e-12)
    for spending in spendings:
        if life is not None:
            assert sum(Fraction(each.life) for each in spending) <= Fraction(life)
