"""Accounting, and what a server of federated trainings needs, load no torch: it takes seconds."""

import subprocess
import sys


def test_torch_is_not_loaded_until_an_engine_is_asked_for() -> None:
    code = (
        "import sys, dpsgd, dpsgd.accounting, dpsgd.clipping.schedules;"
        "import dpsgd.federated.rules, dpsgd.federated.server_optimizers;"
        "assert 'PrivacyEngine' in dpsgd.__all__;"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
