"""The running version of the packages, and the revision of their source."""

import os
import subprocess
from functools import cache
from pathlib import Path


def version() -> str:
    """Return the version of the packages, which are released together."""
    from ldp.version import __version__  # not for the command's help, which does without `ldp`

    return __version__


def revision() -> str:
    """Return the commit: HEARSAY_REVISION where an image sets it, or the git checkout's HEAD.

    "unknown" where there is neither.
    """
    return os.environ.get("HEARSAY_REVISION") or _commit()


@cache
def _commit() -> str:
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return "unknown"  # installed, perhaps into a checkout of something else
    command = ["git", "-C", str(root), "rev-parse", "--short=12", "HEAD"]
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=5.0
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"
