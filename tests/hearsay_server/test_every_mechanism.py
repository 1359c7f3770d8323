"""Every mechanism that a survey can name, from device to estimate over a real server."""

from collections.abc import Iterator

import numpy as np
import pytest

from hearsay import Analyst
from hearsay.asking import Answer
from hearsay_server.surveys import catalogue
from ldp.testing import SeededCoins
from support import Server, rows_of
from support import device as ready_device

DEVICES = 300
VALUES = ("red", "green", "blue", "black", "white")
COLOURS = np.repeat(VALUES, (15, 180, 0, 75, 30))
NUMBERS = np.linspace(5.0, 10.0, DEVICES)
QUESTIONS = [f"colour_{name}" for name in catalogue.CATEGORICAL]
QUESTIONS += [f"number_{name}" for name in catalogue.NUMERIC]


def survey() -> str:
    """One attribute per mechanism; together they use all the epsilon that a record may have."""
    lines = ['name = "all"', "[levels]", "open = 32.0"]
    for question in QUESTIONS:
        kind, _, mechanism = question.partition("_")
        lines += ["[[attributes]]", f'name = "{question}"', f'mechanism = "{mechanism}"']
        if kind == "colour":
            lines += ["[attributes.categorical]", f"values = {list(VALUES)}"]
        else:
            lines += ["[attributes.numeric]", "low = 0", "high = 10"]
    return "\n".join(lines)


@pytest.fixture(scope="module")
def analyst(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Analyst]:
    """The analyst of a server that 300 devices have answered in full."""
    server = Server(tmp_path_factory.mktemp("data"))
    server.start()
    server.create(survey())
    for device, (colour, number) in enumerate(zip(COLOURS, NUMBERS, strict=True)):
        coins = SeededCoins(device)
        with ready_device(server.address, "all", level="open", coins=coins) as client:
            answers = {q: str(colour) if q.startswith("colour") else number for q in QUESTIONS}
            assert client.record(**answers).taken == tuple(QUESTIONS)
    with Analyst(server.address) as connected:
        yield connected
    server.stop()


def answer(analyst: Analyst, question: str) -> Answer:
    response = analyst.estimate("all", question)
    assert response.reports == DEVICES
    return response


@pytest.mark.slow
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_survey_can_name_the_mechanism(analyst: Analyst, question: str) -> None:
    rows = rows_of(answer(analyst, question))
    if question.startswith("colour"):
        assert [row.label for row in rows] == list(VALUES)
        truth = [float(np.mean(value == COLOURS)) for value in VALUES]
    else:
        truth = [float(NUMBERS.mean())]
    for row, expected in zip(rows, truth, strict=True):
        assert 0 < row.standard_error < 0.5 * (1 if question.startswith("colour") else 10)
        assert abs(row.estimate - expected) < 5 * row.standard_error
