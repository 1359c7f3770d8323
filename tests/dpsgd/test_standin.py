"""The stand-in for another device, and what is tested on it, in processes of their own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from standin import NAME
from torch.utils import backend_registration

HERE = Path(__file__).parent
pytestmark = pytest.mark.skipif(
    not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"),
    reason="this torch has no devices made in Python",
)


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=HERE.parents[1],
        env=os.environ | {"DPSGD_TEST_DEVICE": NAME},
        capture_output=True,
        text=True,
        check=False,
        timeout=230,
    )


@pytest.mark.slow
def test_training_on_another_device_is_as_on_a_cpu() -> None:
    command = ["-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider", "--tb=short"]
    done = run(*command, str(HERE / "test_cuda.py"))
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed
    assert int(passed[1]) > 100


@pytest.mark.slow
def test_tensors_of_the_standin_are_no_arrays_and_meet_no_others() -> None:
    script = """
import pytest, standin, torch
standin.register()
there, here = torch.arange(3.0, device="standin"), torch.ones(3)
assert not there.is_cpu and there.device.type == "standin"
for refused in (lambda: there + here, lambda: here.add_(there), lambda: there.numpy()):
    with pytest.raises((RuntimeError, TypeError)):
        refused()
moved = here.to("standin")
moved.view(-1)[1:] += there[1:]
assert torch.equal(moved.cpu(), torch.tensor([1.0, 2.0, 3.0]))
assert torch.equal((moved * torch.tensor(2.0)).cpu(), torch.tensor([2.0, 4.0, 6.0]))
"""
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    done = run("-c", f"import sys; sys.path[:0] = {path.split(os.pathsep)!r}\n{script}")
    assert done.returncode == 0, done.stderr
