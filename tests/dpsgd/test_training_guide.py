"""The guide's code runs as it stands, and its tables leave nothing out."""

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from dpsgd import PrivacyEngine
from support import free_port

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
PRIVATE = GUIDE.split("## Training privately\n")[1].split("### How it works\n")[0]
CODE = re.findall(r"^```python\n(.*?)^```", PRIVATE, re.S | re.M)
FIRST, LARGER, PROCESSES, *LOOPS = CODE


def test_ten_lines_give_a_private_model(capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    names: dict[str, object] = {}
    exec(compile(FIRST, "ten lines", "exec"), names)
    epsilon = float(capsys.readouterr().out.split()[1])
    assert 2.99 <= epsilon <= 3.0
    x, y = names["dataset"].tensors  # type: ignore[attr-defined]
    with torch.no_grad():
        assert (names["model"](x).argmax(1) == y).float().mean() > 0.8  # type: ignore[operator]


def test_a_larger_model_goes_on_from_its_checkpoint(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(FIRST, "ten lines", "exec"), names)
    exec(compile(LARGER, "a larger model", "exec"), names)
    engine = names["engine"]
    assert isinstance(engine, PrivacyEngine)
    assert sum(event.steps for event in engine.accountant.history) == 20
    assert float(capsys.readouterr().out.split()[-3]) > 0


@pytest.mark.slow
def test_several_processes_agree(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    imports = FIRST.split("\n\npeople")[0]
    script.write_text(f"{imports}\n{PROCESSES}")
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    running = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", str(script)],
            env=os.environ | where | {"RANK": str(rank), "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    said = [process.communicate(timeout=300)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0]
    assert said[0] == said[1]
    assert re.fullmatch(r"epsilon \d\.\d\d\n", said[0])


@pytest.mark.parametrize(
    "function", [PrivacyEngine, PrivacyEngine.make_private], ids=["engine", "make_private"]
)
def test_every_option_is_in_the_tables(function: object) -> None:
    tables = GUIDE.split("### Options\n")[1].split("### Sharp edges\n")[0]
    for name in inspect.signature(function).parameters:  # type: ignore[arg-type]
        assert name == "self" or f"`{name}`" in tables


def test_sharp_edges_have_a_severity() -> None:
    rows = GUIDE.split("### Sharp edges\n")[1].split("###")[0].strip().splitlines()[2:]
    assert {row.rsplit("|", 2)[1].strip() for row in rows} == {"high", "medium", "low"}
