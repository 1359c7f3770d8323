"""What importing the package pulls in."""

import subprocess
import sys


def test_importing_ldp_does_not_import_scipy() -> None:
    code = "import sys, ldp, ldp.mechanisms; sys.exit('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
