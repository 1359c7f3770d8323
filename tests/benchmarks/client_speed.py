"""What the SDK costs a device's processor, over HTTP and over gRPC.

    python tests/benchmarks/client_speed.py [--quick]

Each figure is the processor time of a process of its own; the kinds take turns, so that a busy
machine slows all of them. A life is a client that is made, gets the plan, records one answer, sends
it and is closed; the server is a process, and its time does not count.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path

from traffic import serving

from hearsay.sending.transport import open_calls
from hearsay.v1 import admin_pb2
from hearsay_server.surveys import survey as surveys

SURVEY = """
name = "mood"
levels = { strict = 1.0 }
[[attributes]]
name = "mood"
[attributes.categorical]
values = ["good", "so-so", "bad"]
[[attributes]]
name = "age"
[attributes.numeric]
low = 20
high = 60
"""

IMPORTS = {
    "numpy": "import numpy",
    "hearsay": "import hearsay",
    "hearsay, for HTTP": "import hearsay, hearsay.sending.over_http",
    "hearsay, for gRPC": "import hearsay, hearsay.sending.over_grpc",
}

IMPORT = """
import time
begin = time.process_time()
{}
print(1e3 * (time.process_time() - begin))
"""

LIVES = """
import json, sys, time
import hearsay
target, count = sys.argv[1], int(sys.argv[2])
if target.startswith("/"):
    from hearsay.testing import RecordingTransport
    target = RecordingTransport(open(target, "rb").read())

def live():
    choices = {"level": "strict", "epsilon": 64.0, "ledger": hearsay.MEMORY, "consent": True}
    with hearsay.Client(target, "mood", **choices) as client:
        assert client.wait_ready(30), client.status()
        assert client.record(mood="good", age=30)
        assert client.flush(30)

begin = time.process_time()
live()
first = time.process_time() - begin
begin = time.process_time()
for _ in range(count):
    live()
each = (time.process_time() - begin) / count
print(json.dumps([1e3 * first, 1e3 * each]))
"""


def ran(code: str, *arguments: str) -> object:
    """Return what a process of its own prints."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "HEARSAY_TESTING": "1"},
    )
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="three turns, of fewer lives")
    rounds, lives = (3, 40) if parser.parse_args().quick else (9, 200)
    imports: dict[str, list[float]] = {name: [] for name in IMPORTS}
    first: dict[str, list[float]] = {"HTTP": [], "gRPC": [], "no transport": []}
    later: dict[str, list[float]] = {name: [] for name in first}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=Path.cwd())))
        server = stack.enter_context(serving(folder, over_http=True))
        with closing(open_calls(server.address)) as calls:
            request = admin_pb2.CreateSurveyRequest(survey=surveys.from_toml(SURVEY, "mood.toml"))
            calls.call("Admin/CreateSurvey", request, admin_pb2.SurveyStatus, 30.0)
            asked, kind = admin_pb2.ShowSurveyRequest(survey="mood"), admin_pb2.ShowSurveyResponse
            plan = folder / "plan"
            plan.write_bytes(calls.call("Admin/ShowSurvey", asked, kind, 30.0).plan)
        http = f"http://{server.http}"
        targets = {"HTTP": http, "gRPC": server.address, "no transport": str(plan)}
        for number in range(rounds + 1):
            for name, line in IMPORTS.items():
                taken = ran(IMPORT.format(line))
                assert isinstance(taken, float)
                if number:  # the first turn compiles
                    imports[name].append(taken)
            for name, target in targets.items():
                found = ran(LIVES, target, str(lives))
                assert isinstance(found, list)
                if number:
                    first[name].append(found[0])
                    later[name].append(found[1])
    out = f"\nprocessor time, ms      {'median':>9}{'least':>9}\n"
    for name, values in imports.items():
        out += row(f"import {name}", values)
    for name in targets:
        out += row(f"first life, {name}", first[name])
    for name in targets:
        out += row(f"later life, {name}", later[name])
    pairs = zip(later["HTTP"], later["gRPC"], strict=True)
    ratio = statistics.median(http / grpc for http, grpc in pairs)
    sys.stdout.write(f"{out}\na life over HTTP takes {ratio:.2f} of one over gRPC\n")


def row(name: str, values: list[float]) -> str:
    return f"{name:26}{statistics.median(values):>7.1f}{min(values):>9.1f}\n"


if __name__ == "__main__":
    main()
