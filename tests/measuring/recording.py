"""What `Client.record` does: calls of functions of our own, files that have them, and their depth.

One answer, to one question of three values, is the first that a client records: with consent and
the plan at hand, and a file as its ledger. Nothing is sent. Counted are all functions of `hearsay`
and `ldp` that the calling thread enters below `record`, each time anew, and generators each time
that they go on; not comprehensions, which Python 3.12 and later do not call. (They were counted at
first: 6 of 127 calls, and one of 17 levels.)
"""

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import hearsay
import ldp
from hearsay.testing import RecordingTransport
from hearsay_server.surveys import survey as surveys

SURVEY = """
name = "mood"
levels = { usual = 16.0 }
[[attributes]]
name = "mood"
mechanism = "krr"
[attributes.categorical]
values = ["good", "so-so", "bad"]
"""
"""At epsilon 16 a report is the answer itself: other draws would take calls more, now and then."""

_OURS = tuple(str(Path(package.__file__ or "").parent) for package in (hearsay, ldp))

_INLINED = {"<listcomp>", "<dictcomp>", "<setcomp>"}


@dataclass(frozen=True, order=True)
class Cost:
    """Calls below `record`, files in which the functions are, and how deep calls are nested."""

    calls: int
    files: int
    depth: int


class _Counter:
    """Counts what a thread does between `sys.setprofile` with it and without."""

    def __init__(self) -> None:
        self.calls = 0
        self.files: set[str] = set()
        self.depth = 0
        self.deepest = 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if not code.co_filename.startswith(_OURS) or code.co_name in _INLINED:
            return
        if event == "call":
            self.calls += 1
            self.files.add(code.co_filename)
            self.depth += 1
            self.deepest = max(self.deepest, self.depth)
        elif event == "return":
            self.depth -= 1


def cost(times: int = 3) -> Cost:
    """Return the least cost of several first records, each of a ledger of its own.

    The first one in a process is dearer: what is computed once is computed then.
    """
    plan = surveys.resolve(surveys.from_toml(SURVEY, "mood.toml"))
    return min(_cost(plan) for _ in range(times))


def _cost(plan: bytes) -> Cost:
    counter = _Counter()
    with tempfile.TemporaryDirectory() as folder:
        ledger = Path(folder) / "ledger"
        hearsay.create_ledger(ledger)
        with hearsay.Client(
            RecordingTransport(plan),
            "mood",
            ledger=ledger,
            level="usual",
            epsilon=16.0,
            consent=True,
        ) as client:
            assert client.wait_ready(), client.status()
            before = sys.getprofile()
            sys.setprofile(counter)
            recorded = client.record(mood="good")
            sys.setprofile(before)
            assert recorded.taken == ("mood",), recorded
    # `record` itself is neither a call below nor a level of depth.
    return Cost(counter.calls - 1, len(counter.files), counter.deepest - 1)


if __name__ == "__main__":
    sys.stdout.write(f"{cost()}\n")
