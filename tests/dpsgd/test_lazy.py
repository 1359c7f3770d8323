"""Accounting loads no torch, which takes seconds."""

import subprocess
import sys


def test_torch_is_loaded_when_an_engine_is_asked_for() -> None:
    code = (
        "import sys, dpsgd, dpsgd.accounting, dpsgd.schedules;"
        "assert 'torch' not in sys.modules;"
        "dpsgd.PrivacyEngine;"
        "assert 'torch' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
