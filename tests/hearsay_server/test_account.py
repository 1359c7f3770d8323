"""`hearsay account` as a user runs it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from command import hearsay

RUN = ("--q", 0.01, "--sigma", 4, "--steps", 1000, "--delta", 1e-5)
FIXED = ("--batch", 10, "--dataset", 1000, "--sigma", 4, "--steps", 10, "--delta", 1e-5)


def test_every_accountant_stands_beside_the_others_with_its_relation() -> None:
    printed = hearsay("account", *RUN).stdout
    assert "for neighbours by: add remove" in printed
    for name in ("privacy loss", "Rényi", "zCDP", "moments", "optimal", "advanced", "Gaussian DP"):
        assert name in printed
    assert "NOT a guarantee" in printed


def test_the_json_says_what_is_a_guarantee() -> None:
    document = json.loads(hearsay("account", *RUN, "--json").stdout)
    rows = {row["accountant"]: row for row in document["accountants"]}
    assert document["relation"] == "add_remove"
    assert {name for name, row in rows.items() if not row["is_guarantee"]} == {
        "central limit approximation",
        "Abadi's baseline",
    }
    pld, rdp = rows["privacy loss distribution"], rows["Rényi DP"]
    assert 0.27 < pld["epsilon"] < rdp["epsilon"] < 0.31
    assert rows["zCDP"]["epsilon"] is None


def test_a_fixed_batch_is_accounted_for_under_replacement() -> None:
    document = json.loads(hearsay("account", *FIXED, "--json").stdout)
    assert document["relation"] == "replace_one"
    assert document["sampling"] == {"kind": "fixed_size", "batch": 10, "dataset": 1000}


@pytest.mark.slow
def test_the_plot_is_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / "epsilon.png"
    done = hearsay("account", *FIXED, "--plot", file)
    assert (done.returncode, done.stderr) == (0, f"drawn into {file}\n")
    again = hearsay("account", *FIXED, "--plot", file)
    assert again.stderr == f"drawn into {file}, in the place of an earlier file\n"
    assert file.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "run",
    [
        ("--q", 0.01, "--sigma", 0.001, "--steps", 10**9, "--delta", 1e-5),
        ("--q", 1e-9, "--sigma", 1e6, "--steps", 10**6, "--delta", 1e-300),
        ("--q", 0.5, "--sigma", 1e-90, "--steps", 3, "--delta", 0.99),
        ("--q", 0, "--sigma", 1, "--steps", 0, "--delta", 0.5),
    ],
    ids=["loud", "quiet", "loudest", "nothing"],
)
def test_extreme_runs_are_answered_by_nothing_negative(run: tuple[object, ...]) -> None:
    rows = json.loads(hearsay("account", *run, "--json").stdout)["accountants"]
    epsilons = [row["epsilon"] for row in rows if row["epsilon"] is not None]
    assert epsilons
    assert min(epsilons) >= 0


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((*RUN, "--batch", 5), "give --q, or --batch and --dataset"),
        (RUN[2:], "give --q, or --batch and --dataset"),
        (("--q", 2, *RUN[2:]), "sampling rate must lie in [0, 1]"),
        (("--q", 1, "--sigma", "nan", *RUN[4:]), "noise_multiplier must be finite and > 0"),
        ((*RUN[:4], "--steps", -5, *RUN[6:]), "steps must be an integer >= 0"),
        ((*RUN[:6], "--delta", 2), "delta must lie strictly between 0 and 1"),
        ((*RUN, "--plot", "/nowhere/epsilon.png"), "there is no folder /nowhere"),
    ],
    ids=["both", "neither", "rate", "noise", "steps", "delta", "plot"],
)
def test_bad_input_is_told_in_one_line(arguments: tuple[object, ...], reason: str) -> None:
    done = hearsay("account", *arguments)
    assert done.returncode == 1
    assert reason in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_missing_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['dp_accounting'] = None; "
        f"sys.argv = {['hearsay', 'account', *map(str, RUN)]}; "
        "from hearsay_server.__main__ import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "pip install 'hearsay-ldp[train]'" in done.stderr
