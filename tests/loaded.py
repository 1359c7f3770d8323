"""Load what the command loads when it first parses options, opens a folder and serves it."""

import gc
import tempfile

from command import hearsay

import hearsay_server.commands.serve  # noqa: F401  # the command loads it when it is run

with tempfile.TemporaryDirectory() as folder:
    done = hearsay("token", "create", "--role", "device", "--data", folder)
    assert not done.returncode, done.stderr
gc.freeze()  # or every process that is forked from this one goes through it all again
