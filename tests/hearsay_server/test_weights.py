"""Weights for a target, from public data: what they are, and that they lower errors."""

import gzip
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from command import hearsay
from numpy.typing import NDArray

from hearsay.plans.plan import parse
from hearsay_server.surveys import survey as surveys
from hearsay_server.surveys import weights
from ldp import FrequencyOracle, InvalidInput
from ldp.testing import SeededCoins

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "fair-affairs" / "fair.csv.gz"

SURVEY = """
name = "habits"
[levels]
only = 2.0
[[attributes]]
name = "ill"
[attributes.categorical]
values = ["no", "yes"]
[[attributes]]
name = "smokes"
[attributes.categorical]
values = ["no", "some", "daily"]
[[attributes]]
name = "age"
[attributes.numeric]
high = 100
[[attributes]]
name = "eyes"
[attributes.categorical]
values = ["blue", "brown"]
"""


def habits(rows: int = 3000) -> str:
    """CSV of people whom smoking makes ill, and age a little, whatever their eyes."""
    source = np.random.default_rng(1)
    lines = ["ill,smokes,age,eyes,unasked"]
    for smokes, age, luck in zip(
        source.integers(3, size=rows),
        source.uniform(0, 100, rows),
        source.random(rows),
        strict=True,
    ):
        ill = "yes" if luck < 0.1 + 0.3 * smokes + 0.002 * age else "no"
        eyes = "brown" if source.random() < 0.5 else "blue"
        lines.append(f"{ill},{('no', 'some', 'daily')[smokes]},{age:.1f},{eyes},x")
    return "\n".join(lines) + "\n"


def test_the_target_gets_most_and_the_others_by_what_they_tell(tmp_path: Path) -> None:
    file = tmp_path / "public.csv"
    file.write_text(habits())
    survey = surveys.from_toml(SURVEY, "t")
    found = weights.propose(survey, "ill", file)
    own = {each.attribute: each for each in found.attributes}
    assert own["ill"].proposed > own["smokes"].proposed > own["age"].proposed
    assert own["age"].proposed > own["eyes"].proposed > 0
    assert own["smokes"].importance > 10 * own["eyes"].importance
    assert found.gain > 1
    for attribute in survey.attributes:
        attribute.weight = own[attribute.name].proposed
    assert weights.propose(survey, "ill", file).gain == pytest.approx(1, abs=1e-6)


def test_the_command_warns_and_shows_them(tmp_path: Path) -> None:
    toml, file = tmp_path / "survey.toml", tmp_path / "public.csv"
    toml.write_text(SURVEY)
    file.write_text(habits(300))
    done = hearsay("survey", "explain", toml, "--for", "ill", "--from", file)
    assert done.returncode == 0, done.stderr
    assert "PUBLIC DATA ONLY" in done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "Weights to explain ill, by 300 public rows" in done.stdout
    assert "At only the present weights take 5.29 times" in done.stdout
    alone = hearsay("survey", "explain", toml, "--for", "ill")
    assert "--from a file of PUBLIC data" in alone.stderr


SET = '[[attributes]]\nname = "apps"\n[attributes.set]\nvalues = ["a", "b"]\n'


@pytest.mark.parametrize(
    ("target", "survey", "text", "match"),
    [
        ("well", SURVEY, habits(9), "no attribute 'well': it has ill, smokes, age, eyes"),
        ("ill", SURVEY, "ill,smokes\nno,no\n", "has no column 'age', 'eyes'"),
        ("ill", SURVEY, habits(0), "has no rows below its heading"),
        (
            "ill",
            SURVEY,
            habits(9) + "no,never,3,blue,x\n",
            "11: 'smokes' is 'never', which .* has no, some, d",
        ),
        (
            "ill",
            SURVEY,
            habits(9) + "no,no,old,blue,x\n",
            "row 11: 'age' is 'old', which is no fini",
        ),
        (
            "ill",
            SURVEY,
            habits(9) + "no,no,nan,blue,x\n",
            "row 11: 'age' is 'nan', which is no fini",
        ),
        ("ill", SURVEY, habits(1), "needs two rows below its heading, got 1"),
        ("ill", SURVEY, habits(9) + "no\n", "row 11 has 1 cell, the heading has 5"),
        ("ill", SURVEY, habits(9) + "\nno,,3,blue,x\n", "row 12: 'smokes' is '', which the survey"),
        ("ill", SURVEY, "ill,smokes,age,eyes\n" + "no,no,1,blue\n" * 9, "tells of 'ill'"),
        ("ill", SURVEY.replace("\n[lev", '\nbudget = "sample"\n[lev', 1), habits(9), "split"),
        ("ill", SURVEY + SET, habits(9).replace("unasked", "apps"), "'apps' is another"),
        ("ill", SURVEY[: SURVEY.index('[[attributes]]\nname = "smokes"')], habits(9), "tells of"),
    ],
)
def test_what_cannot_be_weighed_is_refused(
    target: str, survey: str, text: str, match: str, tmp_path: Path
) -> None:
    file = tmp_path / "public.csv"
    file.write_text(text, encoding="utf-8-sig")
    with pytest.raises(InvalidInput, match=match):
        weights.propose(surveys.from_toml(survey, "t"), target, file)


def test_a_table_is_read_as_by_the_other_commands(tmp_path: Path) -> None:
    survey, file = surveys.from_toml(SURVEY, "t"), tmp_path / "public.csv.gz"
    text = habits(300)
    file.write_text(text)
    plain = weights.propose(survey, "ill", file)
    other = text.replace("ill,smokes,age", " Ill, Smokes ,AGE", 1).replace(",", ", ") + "\n\n"
    file.write_bytes(gzip.compress(("\ufeffsep=,\r\n" + other).encode()))
    assert weights.propose(survey, "ill", file) == plain


def test_numbers_that_no_float_can_span_count_as_the_ends_of_the_range(tmp_path: Path) -> None:
    file = tmp_path / "public.csv"
    text = habits(300)
    file.write_text(text + "no,no,1e308,blue,x\nno,no,-1.7976931348623157e308,blue,x\n")
    found = weights.propose(surveys.from_toml(SURVEY, "t"), "ill", file)
    assert all(np.isfinite(each.proposed) for each in found.attributes)


def _rows(mechanism: FrequencyOracle, values: NDArray[np.intp], seed: int) -> NDArray[np.float64]:
    """An unbiased indicator of each value, by report, centred, shape (n, k)."""
    p, q = map(float, mechanism.support)
    codes = mechanism.randomize_many(values, SeededCoins(seed))
    seen = np.stack([mechanism.evidence(codes, v) for v in range(mechanism.k)], axis=1)
    found: NDArray[np.float64] = (seen - q) / (p - q)
    return found - found.mean(axis=0)


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_file(), reason="the data set is not here")
def test_they_lower_the_errors_of_an_analysis_of_affairs(tmp_path: Path) -> None:
    """Half of Fair's answers are public, the people of the other half are asked.

    The squared errors of the tables fell by factors of 1.3 (education) to 7.8 (years of marriage).
    """
    pandas = pytest.importorskip("pandas")
    table = pandas.read_csv(DATA).sample(frac=1, random_state=1)
    table.insert(0, "affair", np.where(table.pop("affairs") > 0, "yes", "no"))
    table = table.astype(str)
    public, file = table.iloc[:3183], tmp_path / "public.csv"
    public.to_csv(file, index=False)
    text = 'name = "affairs"\n[levels]\nonly = 4.0\n'
    for name in table.columns:
        values = ", ".join(f'"{value}"' for value in sorted(table[name].unique()))
        text += f'[[attributes]]\nname = "{name}"\n[attributes.categorical]\nvalues = [{values}]\n'
    survey = surveys.from_toml(text, "t")
    proposed = weights.propose(survey, "affair", file)

    def errors() -> Mapping[str, float]:
        """The mean squared error of each table's departures from independence."""
        plan = parse(surveys.resolve(survey))
        mechanisms = plan.levels["only"].mechanisms
        people = table.iloc[3183:].sample(20_000, replace=True, random_state=2)
        values = {
            name: people[name].map(sorted(table[name].unique()).index).to_numpy()
            for name in table.columns
        }
        plain = {
            name: np.eye(mechanisms[name].parameters)[own] - np.bincount(own) / own.size
            for name, own in values.items()
        }
        found = dict.fromkeys(list(values)[1:], 0.0)
        runs = 12
        for seed in range(runs):
            reported = {}
            for place, (name, own) in enumerate(values.items()):
                mechanism = mechanisms[name]
                assert isinstance(mechanism, FrequencyOracle)
                reported[name] = _rows(mechanism, own, 100 * seed + place)
            for name in found:
                estimate = reported[name].T @ reported["affair"] / len(people)
                truth = plain[name].T @ plain["affair"] / len(people)
                found[name] += float(np.sum((estimate - truth) ** 2)) / runs
        return found

    even = errors()
    for attribute in survey.attributes:
        attribute.weight = next(
            each.proposed for each in proposed.attributes if each.attribute == attribute.name
        )
    weighed = errors()
    tells = {each.attribute: each.importance for each in proposed.attributes}
    gains = [even[name] / weighed[name] for name in even]
    assert min(gains) > 1
    total = sum(tells[n] * even[n] for n in even) / sum(tells[n] * weighed[n] for n in even)
    assert total == pytest.approx(proposed.gain, rel=0.5)
