"""A server that lies to an operator about trainings: nothing that it says is used or written."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command import hearsay
from lying import Liar, lying
from training_files import written


@pytest.fixture(scope="module")
def liar(address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Liar]:
    file = written(tmp_path_factory.mktemp("training"))
    made = hearsay("training", "create", file, "--target", address)
    assert made.returncode == 0, made.stderr
    with lying(address) as found:
        yield found


def other_name(answers: list[Any]) -> None:
    answers[0].status.training = "../../x"


def other_title(answers: list[Any]) -> None:
    answers[0].status.title = "\x1b[2J"


def trouble(answers: list[Any]) -> None:
    answers[0].status.trouble = "a\nb\x1b[2J"


def late_time(answers: list[Any]) -> None:
    answers[0].rounds[0].opened = 1 << 60


def round_twice(answers: list[Any]) -> None:
    answers[0].rounds.append(answers[0].rounds[0])


def endless_rounds(answers: list[Any]) -> None:
    """Each answer has the same round again: whoever asks for the next ones never ends."""
    if not answers[0].rounds:
        answers[0].rounds.add(round=1, state=1, model=bytes(32))


def unknown_state(answers: list[Any]) -> None:
    answers[0].rounds[0].state = 77


def short_hash(answers: list[Any]) -> None:
    answers[0].status.model = b"../x"


def hostile_reason(answers: list[Any]) -> None:
    answers[0].visits.refused["\x1b[2J"] = 3


@pytest.mark.parametrize(
    "change",
    [
        other_name,
        other_title,
        trouble,
        late_time,
        round_twice,
        endless_rounds,
        unknown_state,
        short_hash,
        hostile_reason,
    ],
)
def test_a_training_that_cannot_be_is_refused(
    liar: Liar, tmp_path: Path, change: Callable[[list[Any]], Any]
) -> None:
    with liar.saying("ShowTraining", change):
        for command in ("show", "export"):
            more = ("--out", tmp_path / "model", "--history", tmp_path / "rounds.csv")
            given = more if command == "export" else ()
            done = hearsay("training", command, "digits", *given, "--target", liar.address)
            assert (done.returncode, done.stdout) == (1, ""), change
            assert "Admin/ShowTraining cannot be used: " in done.stderr
            assert done.stderr.count("\n") == 1 and "\x1b" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def other_bytes(answers: list[Any]) -> None:
    answers[0].data = bytes(len(answers[0].data))


def no_bytes(answers: list[Any]) -> None:
    answers[0].data = b""


def endless(answers: list[Any]) -> None:
    answers[0].size = 1 << 60


def too_many(answers: list[Any]) -> None:
    answers[0].size = 1


@pytest.mark.parametrize("change", [other_bytes, no_bytes, endless, too_many])
def test_a_model_with_other_bytes_is_not_written(
    liar: Liar, tmp_path: Path, change: Callable[[list[Any]], Any]
) -> None:
    out = tmp_path / "model.safetensors"
    with liar.saying("GetModel", change):
        done = hearsay("training", "export", "digits", "--out", out, "--target", liar.address)
    assert (done.returncode, done.stdout) == (1, "")
    assert "cannot be used" in done.stderr or "sent another model" in done.stderr
    assert list(tmp_path.iterdir()) == []
    done = hearsay("training", "export", "digits", "--out", out, "--target", liar.address)
    assert done.returncode == 0


def test_an_upload_that_gets_nowhere_ends(liar: Liar, tmp_path: Path) -> None:
    file = written(tmp_path)
    text = file.read_text().replace('"digits"', '"others"').replace("softmax", "linear")
    file.write_text(text)

    def again(answers: list[Any]) -> None:
        answers[0].next = 0

    with liar.saying("UploadModel", again):
        done = hearsay("training", "create", file, "--target", liar.address)
    assert done.returncode == 1
    assert "Admin/UploadModel cannot be used: next: 0 is no byte after 0" in done.stderr


def test_a_list_with_names_that_are_none_is_refused(liar: Liar) -> None:
    def change(answers: list[Any]) -> None:
        answers[0].trainings[0].training = "[red]../x"

    with liar.saying("ListTrainings", change):
        done = hearsay("training", "list", "--target", liar.address)
    assert (done.returncode, done.stdout) == (1, "")
