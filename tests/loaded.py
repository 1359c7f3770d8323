"""Load what the command loads when it first parses options and opens a folder."""

import gc
import tempfile

from command import hearsay

with tempfile.TemporaryDirectory() as folder:
    done = hearsay("token", "create", "--role", "device", "--data", folder)
    assert not done.returncode, done.stderr
gc.freeze()  # or every process that is forked from this one goes through it all again
