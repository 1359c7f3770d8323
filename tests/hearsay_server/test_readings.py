"""`reading.js`, with which a survey's page reads codes, says what `describe.said` says of them."""

import json
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from described import DESCRIBED, asked

from hearsay.plans.kinds import Categorical, Numeric
from hearsay_server.surveys.describe import describe, said
from hearsay_server.surveys.readings import labels, reading
from ldp import (
    HRR,
    RAPPOR,
    CountMeanSketch,
    HadamardCountMeanSketch,
    LocalHashing,
    Mechanism,
)
from ldp.testing import SeededCoins

SCRIPT = Path(str(files("hearsay_server") / "pages" / "static" / "reading.js"))
ALL = DESCRIBED | {
    "sketch of many": CountMeanSketch(300, 2.0, hashes=64, buckets=32, seed=7),
    "Hadamard sketch of many": HadamardCountMeanSketch(300, 2.0, hashes=64, buckets=100, seed=7),
    "filters of many groups": RAPPOR.calibrate(1.0, 2.0, bits=16, hashes=2, cohorts=600),
}
TELL = """
import { read, inWords } from "./reading.mjs";
import { readFileSync, writeFileSync } from "node:fs";
const told = JSON.parse(readFileSync("cases.json")).map(({ reading, labels, codes }) =>
  codes.map((code) => {
    const bytes = new Uint8Array(code);
    return { ...read(reading, bytes), words: inWords(reading, labels, bytes) };
  }));
writeFileSync("told.json", JSON.stringify(told));
"""


def codes_of(mechanism: Mechanism) -> list[bytes]:
    _, value = asked(mechanism)
    return [
        mechanism.encode(mechanism.randomize_many([value], SeededCoins(seed))) for seed in range(20)
    ]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """What the script says of 20 codes of each mechanism."""
    if shutil.which("node") is None:
        pytest.skip("needs Node")
    folder = tmp_path_factory.mktemp("reading")
    cases = []
    for mechanism in ALL.values():
        domain, _ = asked(mechanism)
        cases.append(
            {
                "reading": reading(domain, mechanism),
                "labels": list(labels(domain)),
                "codes": [list(code) for code in codes_of(mechanism)],
            }
        )
    shutil.copy(SCRIPT, folder / "reading.mjs")
    (folder / "cases.json").write_text(json.dumps(cases))
    (folder / "tell.mjs").write_text(TELL)
    subprocess.run(["node", "tell.mjs"], cwd=folder, check=True)
    found = json.loads((folder / "told.json").read_text())
    return dict(zip(ALL, found, strict=True))


@pytest.mark.parametrize("name", ALL)
def test_the_script_says_of_a_code_what_the_server_says(
    told: dict[str, list[dict[str, Any]]], name: str
) -> None:
    mechanism = ALL[name]
    domain, _ = asked(mechanism)
    for code, there in zip(codes_of(mechanism), told[name], strict=True):
        assert "which name no answer" not in there["words"]
        if isinstance(domain, Numeric):
            counted = describe(domain, mechanism, code).partition("counts as ")[2]
            assert there["number"] == pytest.approx(float(counted.partition(",")[0]), rel=1e-3)
            continue
        here = said(mechanism, code)
        assert tuple(there.get("places", ())) == here.places
        assert there.get("denied") == (None if here.denied is None else [*here.denied])
        assert there.get("told", "") == here.words
        assert there.get("reveals", False) == (here.how == "reveals")


@pytest.mark.parametrize("name", ["cms", "hcms", "dbitflip", "loloha", "rappor", "prefix_hashing"])
def test_a_code_of_hashes_and_of_asked_answers_is_told_in_words(
    told: dict[str, list[dict[str, Any]]], name: str
) -> None:
    for there in told[name]:
        words, bytes_ = there["words"].split(" (bytes ")
        assert bytes_.endswith(")")
        if name == "dbitflip":
            assert words.count("“value ") == 2 and ("yes to " in words or "no to " in words)
        elif name in ("rappor", "prefix_hashing"):
            assert "bits are set" in words or "of all beginnings of" in words
        else:
            assert words.startswith(("a code that fits “value ", "a code that fits none of"))


@pytest.mark.parametrize(
    "mechanism",
    [
        CountMeanSketch(20, 2.0, hashes=5000, buckets=4),
        HadamardCountMeanSketch(5, 2.0, hashes=5000, buckets=2),
        LocalHashing(5000, 1.0),
        HRR(1000, 1.0),
    ],
)
def test_what_would_be_too_large_for_a_page_is_not_read(mechanism: Mechanism) -> None:
    domain, _ = asked(mechanism)
    assert reading(domain, mechanism) == {"form": "code"}
    assert isinstance(domain, Categorical)
    assert describe(domain, mechanism, codes_of(mechanism)[0]).partition("  ")[2].startswith("says")
