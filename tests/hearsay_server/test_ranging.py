"""The range of a number of unknown size: a pilot is written, collected and read."""

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
from collected import batch, register
from command import hearsay
from serving import submit

from hearsay.plans.kinds import Binned
from hearsay_server.surveys import survey as surveys

WAGES = np.exp(np.random.default_rng(4).normal(6.2, 0.7, 20_000))
"""Weekly wages of 20,000 people: 490 dollars in the middle, 1% above 2,500."""


@pytest.mark.slow
def test_a_pilot_proposes_the_range_of_a_survey(address: str, tmp_path: Path) -> None:
    file, answers = tmp_path / "pilot.toml", tmp_path / "answers.json"
    size = ("--smallest", 1, "--largest", 1e5, "--per-decade", 3, "--epsilon", 2)
    written = hearsay("survey", "range", "wage", *size, "--out", file)
    assert written.returncode == 0, written.stderr
    _, plan = register(address, file.read_text())
    domain = plan.attributes["wage"].domain
    assert isinstance(domain, Binned)
    assert (domain.low, domain.high, domain.encode(0), domain.count) == (-1e5, 1e5, 15, 31)
    bins = np.array([domain.encode(float(wage)) for wage in WAGES])
    (level,) = plan.levels
    (result,) = submit(address, batch(plan, level, "once", {"wage": bins}, seed=1))
    assert result.status == result.STORED

    asked = ("survey", "range", "wage", "--pilot", file, "--n", 20_000, "--epsilon", 1)
    done = hearsay(*asked, "--target", address, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert 0 <= found["low"] < 200
    assert 1500 < found["high"] < 5000
    clamped = np.mean((found["low"] > WAGES) | (found["high"] < WAGES))
    assert found["clamped_low"] <= clamped <= found["clamped_high"] < 0.15
    (block,) = tomllib.loads(found["toml"])["attributes"]
    assert block["numeric"]["clamp"]
    survey = 'name = "wages"\nlevels = { only = 1.0 }\n' + found["toml"]
    surveys.resolve(surveys.from_toml(survey, "wages.toml"))

    answers.write_text(hearsay("query", plan.survey, "wage", "--json", "--target", address).stdout)
    told = hearsay(*asked, "--answers", answers, "--plot", tmp_path / "range.png").stdout
    assert (tmp_path / "range.png").read_bytes().startswith(b"\x89PNG")
    assert found["toml"] in told
    assert f"noise has a standard error\n  of {found['noise']:.3g}, both" in told
    assert f"by up to {found['bias_high']:.3g} (95%)" in told
    assert max(map(len, told.splitlines())) <= 80
    swapped = json.loads(answers.read_text())
    shares = swapped["tables"]["rows"]["columns"]["estimate"]["values"]
    shares[-5], shares[23] = shares[23], shares[-5]
    two_modes = tmp_path / "two_modes.json"
    two_modes.write_text(json.dumps(swapped))
    assert "contradict the fitted" in hearsay(*asked, "--answers", two_modes).stderr
    other = tmp_path / "other.toml"
    other.write_text(file.read_text().replace("pilot = 2.0", "pilot = 1.0"))
    done = hearsay(*asked, "--answers", answers, "--pilot", other)
    assert "another revision of the pilot" in done.stderr
    other.write_text(file.read_text().replace("edges = [", "edges = [-1e9, "))
    found = hearsay(*asked, "--answers", answers, "--pilot", other)
    assert f"have 31 bins, {other} declares 32 for 'wage': give the file" in found.stderr
    answers.write_text("{}")
    assert "are not what" in hearsay(*asked, "--answers", answers).stderr


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((), "give --out to write a pilot, or --pilot and --n"),
        (("--pilot", "FILE", "--n", 5, "--plot", "a.txt"), "ends in .png, .svg, .pdf"),
        (("--out", "FILE", "--n", 5), "give --out to write a pilot, or --pilot and --n"),
        (("--out", "FILE", "--smallest", 5, "--largest", 1), "0 < smallest < largest"),
        (("--out", "FILE", "--largest", 1e300), "take a larger smallest number"),
        (("--out", "FILE", "--epsilon", 99), "epsilon"),
        (("--out", "FILE"), "survey.toml exists: give another name, or remove it first"),
        (("--pilot", "FILE"), "--pilot needs --n, the number of reports"),
        (("--pilot", "FILE", "--n", 5), "does not ask for 'wage' as a number in bins"),
    ],
)
def test_what_is_no_pilot_is_refused(
    arguments: tuple[object, ...], match: str, tmp_path: Path
) -> None:
    file = tmp_path / "survey.toml"
    asks = 'name = "a"\nlevels = { only = 1.0 }\n[[attributes]]\nname = "age"\n'
    text = asks + "[attributes.numeric]\nhigh = 100\nbins = 10\n"
    file.write_text(text)
    done = hearsay("survey", "range", "wage", *(file if a == "FILE" else a for a in arguments))
    assert done.returncode == 1
    assert match in done.stderr
    assert file.read_text() == text
