"""The committed code of the wire is what the protos say."""

import subprocess
import sys
from pathlib import Path

import pytest

import hearsay

ROOT = Path(__file__).resolve().parent.parent


def test_generated_code_is_up_to_date(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools")
    script = ROOT / "protos" / "generate.py"
    subprocess.run([sys.executable, script, tmp_path], check=True)
    committed = Path(hearsay.__file__).parent / "v1"
    fresh = {f.name: f.read_text() for f in (tmp_path / "hearsay" / "v1").iterdir()}
    kept = {f.name: f.read_text() for f in committed.glob("*_pb2*")}
    assert fresh == kept, "run `make protos`"
