"""`hearsay audit --canaries`: real devices through a real server, honest ones and a leaking one."""

import json
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import hearsay

from hearsay_server.demo import canaries as collection
from ldp import KRR, HadamardResponse, Mechanism, OneBitMean
from support import SURVEY

AUDITED = (
    SURVEY + '[[attributes]]\nname = "pet"\n[attributes.categorical]\nvalues = ["no", "yes"]\n'
)

REVEALING = AUDITED.removeprefix(SURVEY) + 'sensitive = ["yes"]\n'
CERTAIN = ("--confidence", 0.9999)
"""Devices draw real coins: at 95% one honest run of twenty might be accused."""


def survey_file(folder: Path, text: str = AUDITED) -> Path:
    file = folder / "audited.toml"
    file.write_text(text)
    return file


@pytest.fixture
def devices_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the canaries live in threads of this process, where what they run can be changed."""
    monkeypatch.setattr("hearsay_server.commands.canaries.start", lambda: ThreadPool(1))


@pytest.mark.slow
@pytest.mark.usefixtures("devices_here")
def test_honest_devices_keep_every_claim(tmp_path: Path) -> None:
    file = survey_file(tmp_path)
    done = hearsay("audit", "--survey", file, "--canaries", 300, *CERTAIN, "--json")
    assert done.returncode == 0, done.stdout
    found = {(row["level"], row["question"]): row for row in json.loads(done.stdout)}
    assert list(found) == [
        (level, question)
        for level in ("strict", "open")
        for question in ("smokes", "age", "pet", None)
    ]
    assert [found[level, None]["claimed"] for level in ("strict", "open")] == [1.0, 4.0]
    assert {row["confidence"] for row in found.values()} == {1 - (1 - 0.9999) / 8}
    assert not any(row["violated"] for row in found.values())
    # Not for want of guesses: at epsilon 4 the bound is near.
    assert found["open", None]["lower_bound"] > 1


@pytest.mark.slow
@pytest.mark.usefixtures("devices_here")
def test_a_device_that_sends_the_truth_in_clear_at_times_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = KRR.randomize

    def leaking(self: KRR, value: int, coins: Any) -> Any:
        return value if coins.bernoulli(2**64 * 2 // 5) else honest(self, value, coins)

    monkeypatch.setattr(KRR, "randomize", leaking)
    text = SURVEY.replace("open = 4.0\n", "") + REVEALING
    file = survey_file(tmp_path, text)
    done = hearsay("audit", "--survey", file, "--canaries", 800, *CERTAIN)
    assert done.returncode == 1
    lines = {line.split()[1]: line for line in done.stdout.splitlines() if "strict" in line}
    assert "REFUTED" in lines["smokes"]
    assert "kept" in lines["age"]
    assert "left out: pet" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.parametrize("arguments", [("krr", "--k", 4, "--epsilon", 1), ()])
def test_canaries_need_a_survey(arguments: tuple[object, ...]) -> None:
    done = hearsay("audit", *arguments, "--canaries", 10)
    assert done.returncode == 1
    assert "--canaries answer a survey" in done.stderr


@pytest.mark.parametrize(
    ("mechanism", "inputs"),
    [
        (KRR(5, 1.5), (1, 4)),
        (HadamardResponse(6, 1.5), (0, 5)),
        (OneBitMean(1.5), (-1.0, 1.0)),
    ],
)
def test_log_ratios_are_those_of_the_exact_channel(
    mechanism: Mechanism, inputs: tuple[Any, Any]
) -> None:
    channel = mechanism.channel()
    places = [each if isinstance(each, int) else -int(each > 0) for each in inputs]
    first, second = (channel.rows[place] for place in places)
    codes = np.array(channel.outputs, dtype=mechanism.code_dtype)
    found = collection._log_ratio(mechanism, inputs, codes)
    exact = [np.log(float(b / a)) for a, b in zip(first, second, strict=True)]
    np.testing.assert_allclose(found, exact, atol=1e-9)
    assert np.abs(found).max() == pytest.approx(mechanism.realised_epsilon)
