"""What a hundred open pages cost a server that takes in reports, and when pages are first painted.

    python tests/benchmarks/pages_load.py [--quick]

The pages are asked as htmx asks: each as often as it says, with the tag of what it shows. Ingest
is of one-row batches, with the pages and without in turns, so that a busy machine slows both. The
server is a process of its own; this one plays devices and pages, and all share the machine.
"""

import argparse
import asyncio
import html
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from traffic import SINGLES, Process, Request, load, one_row, register, serving, singles, used

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / name) for name in ("", "hearsay_server")]

from visiting import Site, chromium  # noqa: E402

ADDRESSES = (
    "/operator",
    "/analyst/bench/estimate?attribute=smokes",
    "/analyst/bench/estimate?attribute=country",
    "/analyst/bench/estimate?attribute=age",
)
"""What the pages show, one after the other."""

PAGES = 100
WARM = 10.0
"""Seconds within which all pages are opened, one after the other: the longest that one waits."""

CALLS = 64


@dataclass
class Answers:
    """How the server answered the pages."""

    new: int = 0
    same: int = 0
    seconds: float = 0.0


def everything(server: Process) -> float:
    """Return the CPU seconds of a server and of the processes that answer its analysts."""
    found = [server.pid]
    for process in found:
        with suppress(FileNotFoundError):  # it has just ended
            for tasks in Path(f"/proc/{process}/task").glob("*/children"):
                found += [int(child) for child in tasks.read_text().split()]
    return used([process for process in found if Path(f"/proc/{process}/stat").exists()])


async def page(server: Process, address: str, wait: float, answers: Answers) -> None:
    """Open a page, and ask for its live part until this is cancelled."""
    host, _, port = server.http.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))

    async def get(path: str) -> str:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {server.http}\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        assert " 200 " in head[:20] or " 204 " in head[:20], head
        if "transfer-encoding: chunked" in head:
            raise RuntimeError(f"{path} is answered in chunks")
        length = re.search(r"content-length: (\d+)", head)
        return (await reader.readexactly(int(length[1]) if length else 0)).decode()

    try:
        shown = await get(address)
        await asyncio.sleep(wait)
        while True:
            found = re.search(r'hx-get="([^"]+)" hx-trigger="every (\d+)s"', shown)
            assert found, shown[:500]
            begin = time.perf_counter()
            answer = await get(html.unescape(found[1]))
            answers.seconds = max(answers.seconds, time.perf_counter() - begin)
            shown = answer or shown
            answers.new += bool(answer)
            answers.same += not answer
            await asyncio.sleep(float(found[2]))
    finally:
        writer.close()


@dataclass
class Turn:
    rate: float
    cpu: float
    """CPU seconds of the server and its processes, of a call."""


async def turn(
    server: Process, make: Callable[[], Request], seconds: float, pages: int, answers: Answers
) -> Turn:
    """Take reports in while so many pages are open."""
    opened = [
        asyncio.create_task(page(server, ADDRESSES[i % len(ADDRESSES)], WARM * i / PAGES, answers))
        for i in range(pages)
    ]
    await asyncio.sleep(WARM if pages else 0.2)  # until all are open
    cpu = everything(server)
    done = await load(server, make, seconds=seconds, calls=CALLS)
    taken = everything(server) - cpu
    for each in opened:
        if each.done():
            each.result()  # raises what ended it
        each.cancel()
        with suppress(asyncio.CancelledError):
            await each
    return Turn(done.rate, taken / done.calls)


def polled(server: Process, make: Callable[[], Request], rounds: int, seconds: float) -> None:
    answers = Answers()
    turns: dict[int, list[Turn]] = {0: [], PAGES: []}
    for count in range(rounds + 1):
        for pages, found in turns.items() if count % 2 else reversed(turns.items()):
            one = asyncio.run(turn(server, make, seconds, pages, answers))
            if count:
                found.append(one)
    pairs = list(zip(turns[PAGES], turns[0], strict=True))
    say(f"{PAGES} pages open, {CALLS} calls of one row under way, {rounds} turns of {seconds:g} s")
    for name, found in (("without pages", turns[0]), (f"with {PAGES}", turns[PAGES])):
        rate = statistics.median(each.rate for each in found)
        cpu = 1e6 * statistics.median(each.cpu for each in found)
        say(f"  {name:15} {rate:8.0f} calls/s  {cpu:7.0f} us of CPU a call")
    rates = sorted(with_.rate / without.rate for with_, without in pairs)
    cpus = sorted(with_.cpu / without.cpu for with_, without in pairs)
    for name, found in (("rate", rates), ("CPU a call", cpus)):
        say(f"  {name}: {statistics.median(found):.3f} ({found[0]:.3f} to {found[-1]:.3f})")
    say(f"  answers: {answers.new} new, {answers.same} as before; {answers.seconds:.2f} s at most")


PAINTED = """() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime"""


def painted(server: Process, times: int) -> None:
    """Print when a browser that knows nothing of the server paints its pages."""
    port = int(server.http.rpartition(":")[2])
    site = Site(port, server.address)
    try:
        with chromium() as browser:
            say("first paint, of a browser without a cache")
            for address in ("/", *ADDRESSES[:3], "/analyst/bench", "/planner"):
                found = []
                for _ in range(times):
                    opened = browser.open(site, address)
                    opened.wait_for_function(PAINTED)
                    found.append(opened.evaluate(PAINTED))
                    opened.context.close()
                say(f"  {address:45} {statistics.median(found):6.0f} ms, {max(found):.0f} at most")
    except pytest.skip.Exception as missing:
        say(str(missing))


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="half a minute")
    quick = parser.parse_args().quick
    rounds, seconds = (2, 3.0) if quick else (8, 10.0)
    with (
        tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as folder,
        serving(Path(folder), over_http=True) as server,
    ):
        plan = register(server)
        asyncio.run(load(server, singles(plan), count=20_000 // SINGLES, calls=4))
        painted(server, 3 if quick else 9)
        polled(server, one_row(plan), rounds, seconds)


if __name__ == "__main__":
    main()
