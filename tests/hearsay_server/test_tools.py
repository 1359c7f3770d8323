"""`hearsay plan`, `audit` and `shuffle` as a user runs them."""

import json
from pathlib import Path

import numpy as np
import pytest
from command import hearsay
from numpy.typing import ArrayLike

from hearsay_server.surveys import catalogue
from ldp import KRR, Coins
from ldp.core.mechanism import Codes
from support import SURVEY


def document(*arguments: object) -> dict[str, float]:
    done = hearsay(*arguments, "--json")
    assert done.stderr == ""
    parsed: dict[str, float] = json.loads(done.stdout)
    return parsed


OUE = ("plan", "oue", "--k", 10, "--epsilon", 1, "--truth", 0.1)


def test_the_reports_for_a_half_width_are_those_known_from_theory() -> None:
    assert document(*OUE, "--half-width", 0.01)["n"] == 148_768
    assert document(*OUE, "--half-width", 0.01, "--simultaneous")["n"] == 305_147


def test_half_width_and_epsilon_are_the_inverse_questions() -> None:
    width = document(*OUE, "--n", 148_768)
    assert width["finds"] == "half_width"
    assert width["half_width"] == pytest.approx(0.01, rel=1e-5)
    asked = ("plan", "oue", "--k", 10, "--truth", 0.1, "--n", 148_768, "--half-width", 0.01)
    assert document(*asked)["epsilon"] == pytest.approx(1, rel=1e-5)


def test_two_waves_are_compared() -> None:
    apart = (*OUE, "--change", 0.01, "--different-people")
    reports = document(*apart)
    assert reports["n"] == pytest.approx(609_334, abs=1)
    power = document(*apart, "--n", 609_332)
    assert (power["finds"], power["power"]) == ("power", pytest.approx(0.8, abs=1e-5))
    # Of the same people both answers may be yes: 2 (z + z')**2 0.1 x 0.11 / 0.01**2 more. The test
    # takes the first period's variance at the mean of both, which is 0.009 larger.
    again = document(*OUE, "--change", 0.01)
    more = 2 * 7.849 * 0.1 * 0.11 + 1.96 * 2.802 * 0.008975
    assert again["n"] - reports["n"] == pytest.approx(more / 0.01**2, rel=2e-3)
    # Student's quantiles of 15 degrees: (2.131 + 0.866)**2 for (1.960 + 0.842)**2, nearly.
    panels = document(*OUE, "--change", 0.01, "--panels", 16)
    assert panels["n"] == pytest.approx(reports["n"] * 1.15, rel=0.02)
    plain = ("plan", "--k", 2, "--epsilon", 8, "--change", 0.5, "--truth", 0.2)
    many = document(*plain, "--panels", 16)
    assert many["n"] == 160  # ten for each panel, or none is used
    assert many["power"] > 0.99
    assert document(*plain, "--panels", 16, "--n", 99) == document(*plain, "--n", 99)
    said = hearsay("plan", "--k", 10, "--epsilon", 1, "--change", 0.05).stdout.splitlines()
    assert said[0].startswith("two periods of ")
    assert max(map(len, said)) <= 80


def test_numbers_are_planned_in_their_own_units() -> None:
    small = document("plan", "--epsilon", 1, "--n", 10_000)
    large = document("plan", "--low", 20, "--high", 60, "--epsilon", 1, "--n", 10_000)
    assert large["half_width"] == pytest.approx(20 * small["half_width"])
    assert (large["mechanism"], large["truth"]) == ("mean_table", 40)
    asked = ("plan", "--low", 20, "--high", 60, "--epsilon", 1)
    assert document(*asked, "--half-width", large["half_width"])["n"] == 10_000
    off_centre = document(*asked, "--n", 10_000, "--truth", 60)
    assert off_centre["half_width"] < large["half_width"]


def test_a_plan_is_told_in_a_sentence_and_the_choice_is_explained() -> None:
    said = hearsay("plan", "--k", 10, "--epsilon", 1, "--half-width", 0.01, "--explain").stdout
    assert " reports at epsilon 1 give each of 10 frequencies a 0.95 interval of +-0.01\n" in said
    assert "mechanism subset, 2 bytes a report\n" in said
    assert "\n  she: variance 80.7958, bytes 10, decode 10\n" in said


def test_help_shows_how_to_ask() -> None:
    said = hearsay("plan", "--help").stdout
    assert "hearsay plan --k 10 --epsilon 1 --half-width 0.01" in said


def test_a_sound_mechanism_passes_its_audit() -> None:
    done = hearsay("audit", "krr", "--k", 8, "--epsilon", 1, "--json")
    assert done.returncode == 0
    single, bulk = json.loads(done.stdout)
    assert (single["sampler"], single["draws"]) == ("single", 10_000)
    assert (bulk["sampler"], bulk["draws"]) == ("bulk", 100_000)
    for found in (single, bulk):
        assert (found["exact"], found["violated"]) == (1.0, False)
        assert 0.7 < found["lower_bound"] <= 1.0
    table = hearsay("audit", "piecewise", "--epsilon", 2).stdout
    assert "too large" in table
    assert "0 of 1 mechanisms violate what they claim" in table


def test_a_survey_is_audited_whole(tmp_path: Path) -> None:
    file = tmp_path / "health.toml"
    file.write_text(SURVEY)
    done = hearsay("audit", "--survey", file, "--draws", 10_000, "--json")
    assert done.returncode == 0
    found = {row["place"]: row for row in json.loads(done.stdout)}
    assert list(found) == ["strict, smokes", "strict, age", "open, smokes", "open, age"]
    assert [row["claimed"] for row in found.values()] == [0.5, 0.5, 2.0, 2.0]
    assert {row["confidence"] for row in found.values()} == {1 - 0.01 / 8}


class KeepsTooOften(KRR):
    """A sampler that strays from the channel it declares."""

    def randomize_many(self, values: ArrayLike, coins: Coins) -> Codes:
        codes = super().randomize_many(values, coins)
        return np.where(coins.bernoulli_many(1 << 62, codes.size), np.asarray(values), codes)


class KeepsOneTooOften(KRR):
    """Sound in bulk, but not in the path that clients take."""

    def randomize(self, value: int, coins: Coins) -> int:
        return value if coins.bernoulli(1 << 63) else super().randomize(value, coins)


@pytest.mark.parametrize("broken", [KeepsTooOften, KeepsOneTooOften])
def test_a_violation_of_either_sampler_is_said_and_ends_with_one(
    broken: type[KRR], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(catalogue.CATEGORICAL, "krr", broken)  # type: ignore[arg-type]
    done = hearsay("audit", "krr", "--k", 4, "--epsilon", 1)
    assert done.returncode == 1
    assert "VIOLATED" in done.stdout
    assert "1 of 1 mechanisms violate what they claim" in done.stdout


def test_a_shuffled_cohort_is_bounded_as_known_from_theory() -> None:
    asked = ("shuffle", "--epsilon", 1, "--n", 10_000)
    any_mechanism, krr = document(*asked), document(*asked, "--krr", 10)
    assert any_mechanism["shuffled_epsilon"] == pytest.approx(0.05301, abs=1e-5)
    assert any_mechanism["bound"] == "clones"
    assert krr["shuffled_epsilon"] == pytest.approx(0.0233, abs=1e-4)
    assert krr["bound"] == "blanket"
    assert "in random order: epsilon 0.053" in hearsay(*asked).stdout


AGES = ("plan", "--low", 0, "--high", 80, "--epsilon", 1)
REFUSED = [
    (("plan", "--k", 10, "--epsilon", 1), "give two of --epsilon, --n and --half-width, or --ch"),
    (("plan", "--k", 10, "--change", 0.1), "--change goes with --epsilon and perhaps --n"),
    (("plan", "--k", 10, "--panels", 16), "--different-people, --panels and --power go"),
    ((*OUE, "--change", 2), "a frequency of 0.1 cannot change by 2: --change is a share, 0.02 for"),
    ((*AGES, "--change", 90), "a mean of 40 cannot change by 90 within 0 to 80"),
    ((*OUE, "--change", 0.1, "--panels", 2), "errors by panels take 4 panels at least, or 0 for"),
    ((*OUE, "--change", 0.1, "--simultaneous"), "--change plans the test of one value"),
    ((*OUE, "--n", 100, "--power", 0.9), "--panels and --power go with --change"),
    (("plan", "--k", 10, "--low", 0, "--epsilon", 1, "--n", 9), "give --k for categories, or"),
    (("plan", "--low", 5, "--epsilon", 1, "--n", 9), "with low < high, got 5.0 and 1.0"),
    (("plan", "--k", 10, "--epsilon", 1, "--n", 0), "n must be at least 1, got 0"),
    (("plan", "--k", 10, "--epsilon", -1, "--n", 9), "epsilon must be finite and > 0, got -1.0"),
    (("plan", "--k", 9, "--epsilon", 1, "--n", 9, "--truth", 2), "--truth must lie in [0, 1]"),
    (("plan", "onebit", "--k", 9, "--epsilon", 1, "--n", 9), "mechanism must be one of auto, krr"),
    (("plan", "krr", "--epsilon", 1, "--n", 9), "mechanism must be one of auto, onebit,"),
    (("audit", "krr"), "give a mechanism and --epsilon (and --k), or --survey"),
    (("audit", "krr", "--survey", "x.toml"), "--survey has its own mechanisms"),
    (("audit", "--survey", "none.toml"), "cannot read none.toml: No such file"),
    (("audit", "krr", "--k", 2, "--epsilon", 1, "--draws", 9), "100 draws, got 2 and 9"),
    (("shuffle", "--epsilon", 1, "--n", 0), "n must be at least 1, got 0"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_what_makes_no_sense_is_refused(arguments: tuple[object, ...], message: str) -> None:
    done = hearsay(*arguments)
    assert done.returncode == 1
    assert done.stderr.startswith("hearsay: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(("command", "options"), [("plan", ("--n", 9)), ("audit", ())])
def test_a_refusal_is_one_line_and_ends_with_one(command: str, options: tuple[object, ...]) -> None:
    done = hearsay(command, "krr", "--k", 1, "--epsilon", 1, *options)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == "hearsay: krr: k must lie in 2..4294967296, got 1\n"
