"""Load what the command loads when it parses options, serves a folder and answers a question."""

import gc
import tempfile

from command import hearsay

import hearsay_server.answers.questions  # a server does, for its first question
import hearsay_server.commands.serve  # noqa: F401  # the command does, when it is run

with tempfile.TemporaryDirectory() as folder:
    done = hearsay("token", "create", "--role", "device", "--data", folder)
    assert not done.returncode, done.stderr
gc.freeze()  # or every process that is forked from this one goes through it all again
