"""The TypeScript SDK in Node against a real server: estimates, restarts, retries."""

import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from hearsay import Analyst
from support import Server, free_port

WEB = Path(__file__).parents[2] / "client" / "web"

FOUR = """
name = "four"
[levels]
strict = 1.0
open = 16.0
[[attributes]]
name = "mood"
[attributes.categorical]
values = ["bad", "so-so", "good"]
[[attributes]]
name = "page"
[attributes.categorical]
values = ["p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8", "p9"]
[[attributes]]
name = "walked"
[attributes.numeric]
low = 0
high = 20
[[attributes]]
name = "affair"
[attributes.categorical]
values = ["no", "yes"]
sensitive = ["yes"]
"""


def why_missing() -> str:
    """Return why the TypeScript SDK cannot run here; "" where it can."""
    if shutil.which("node") is None:
        return "node is not installed"
    if not (WEB / "dist" / "index.js").exists():
        return "client/web is not built: npm ci && npm run build there"
    return ""


pytestmark = pytest.mark.skipif(bool(why_missing()), reason=why_missing())


class People:
    """A process of Node in which people answer."""

    def __init__(self, url: str) -> None:
        script = Path(__file__).with_name("web_people.mjs")
        self._process = subprocess.Popen(
            ["node", script, WEB / "dist" / "index.js", url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def tell(self, what: str, **how: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": what, **how}) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def do(self, what: str, **how: object) -> Any:
        self.tell(what, **how)
        return self.answer()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Server, str]]:
    http = f"127.0.0.1:{free_port()}"
    server = Server(tmp_path / "data", "--http", http)
    server.start()
    try:
        yield server, f"http://{http}"
    finally:
        if server.is_running():
            server.stop()


def test_answers_of_500_people_become_statistics(served: tuple[Server, str]) -> None:
    server, url = served
    server.create(FOUR)
    with People(url) as people:
        assert people.do("ready", timeout=10_000)
        assert people.do("record", **{"from": 0, "to": 500}) == 2000
        assert people.do("flush", timeout=20_000)
        counters = people.do("counters")
        assert counters["recorded"] == 500
        assert counters["spent"] == 2000
        assert people.do("close", timeout=5000)
    true = {
        "mood": {"bad": 0.25, "so-so": 0.25, "good": 0.5},
        "page": {"p0": 167 / 500, "p1": 167 / 500, "p2": 166 / 500, "p3": 0.0, "p9": 0.0},
        "affair": {"no": 0.8, "yes": 0.2},
    }
    with Analyst(server.address) as analyst:
        for attribute, shares in true.items():
            found = analyst.estimate("four", attribute).to_frame()
            for value, share in shares.items():
                row = found.loc[value]
                assert abs(row["estimate"] - share) <= 4 * row["standard_error"], (attribute, value)
        (row,) = analyst.estimate("four", "walked").to_frame().to_dict("records")
        mean = sum(i % 21 for i in range(500)) / 500
        assert abs(row["estimate"] - mean) <= 4 * row["standard_error"]
        assert len(analyst.rows("four")) == 500


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_server_that_restarts_again_and_again_counts_everybody_once(
    served: tuple[Server, str], how: signal.Signals
) -> None:
    server, url = served
    server.create(FOUR)
    with People(url) as people:
        assert people.do("ready", timeout=10_000)
        for step in range(6):
            people.tell("record", **{"from": step * 80, "to": step * 80 + 80})
            server.stop(how)  # while batches are under way
            assert people.answer() == 320
            server.start()
        assert people.do("flush", timeout=30_000)
        counters = people.do("counters")
        assert people.do("waiting") == 0
    assert counters["recorded"] == 480
    assert set(counters) <= {"recorded", "spent", "stored", "duplicate"}
    with Analyst(server.address) as analyst:
        assert len(analyst.rows("four")) == 480


def test_a_survey_that_does_not_exist_is_said_and_found_later(served: tuple[Server, str]) -> None:
    server, url = served
    with People(url) as people:
        status = people.do("status")
        while status["reason"] == "no_plan":
            status = people.do("status")
        assert status["reason"] == "server_refused"
        assert "four" in status["detail"]
        server.create(FOUR)
        # It is asked for again within `longestWait`.
        while people.do("status")["reason"] != "ready":
            pass
