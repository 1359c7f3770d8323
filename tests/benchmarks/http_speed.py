"""What calls over HTTP cost a server's processor, beside gRPC and bare echoes.

    python tests/benchmarks/http_speed.py [--quick]

The servers are processes of their own and take turns, so that a busy machine slows all of them; the
calls come from this process, 8 and then 64 under way, each on a connection of its own.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import uvicorn
import uvloop
from google.protobuf.json_format import MessageToDict
from traffic import Process, Request, echoing, free_port, one_row, register, serving, started

from hearsay.v1 import collector_pb2

SERVICE = "/hearsay.v1.Collector/"
PROTO, JSON = "application/proto", "application/json"

Call = Callable[[], Awaitable[None]]
Connect = Callable[[], Any]
"""Returns an asynchronous context of a `Call`, on a connection of its own."""


@dataclass
class Turn:
    """A few seconds of calls of one kind."""

    rate: float
    cpu: float
    """The server's processor time of a call, in us."""


async def bare(scope: Any, receive: Any, send: Any) -> None:
    """Answer the body that came, all of it, in one part."""
    body = (await receive())["body"]
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def over_grpc(address: str, method: str, make: Callable[[], bytes]) -> Connect:
    @asynccontextmanager
    async def connect() -> AsyncIterator[Call]:
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(address, options) as channel:
            ask = channel.unary_unary(SERVICE + method)

            async def call() -> None:
                await ask(make(), timeout=60)

            yield call

    return connect


def over_http(address: str, method: str, content_type: str, make: Callable[[], bytes]) -> Connect:
    host, _, port = address.rpartition(":")

    @asynccontextmanager
    async def connect() -> AsyncIterator[Call]:
        reader, writer = await asyncio.open_connection(host, int(port))
        head = f"POST {SERVICE}{method} HTTP/1.1\r\nHost: {address}\r\n"
        head += f"Content-Type: {content_type}\r\nContent-Length: "

        async def call() -> None:
            body = make()
            writer.write(head.encode() + b"%d\r\n\r\n" % len(body) + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 200"), answer
            length = answer.partition(b"content-length: ")[2].partition(b"\r\n")[0]
            await reader.readexactly(int(length))

        yield call
        writer.close()

    return connect


async def turn(server: Process, connect: Connect, seconds: float, calls: int) -> Turn:
    """Keep so many calls under way for some seconds."""
    done = 0

    async def worker(call: Call) -> None:
        nonlocal done
        while time.perf_counter() < end:
            await call()
            done += 1

    async with AsyncExitStack() as stack:
        made = [await stack.enter_async_context(connect()) for _ in range(calls)]
        cpu, begin = server.cpu(), time.perf_counter()
        end = begin + seconds
        await asyncio.gather(*map(worker, made))
        taken = time.perf_counter() - begin
        return Turn(done / taken, 1e6 * (server.cpu() - cpu) / done)


def as_json(request: Request) -> bytes:
    return json.dumps(MessageToDict(request)).encode()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="three turns of a second each")
    rounds, seconds = (3, 1.0) if parser.parse_args().quick else (5, 2.0)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=Path.cwd())))
        server = stack.enter_context(serving(folder, over_http=True))
        echo = stack.enter_context(echoing())
        port = free_port()
        plain = Process(stack.enter_context(started(__file__, "--bare", str(port))), "")
        make = one_row(register(server))
        plan = collector_pb2.GetPlanRequest(survey="bench").SerializeToString()
        binary, written = (lambda: make().SerializeToString()), (lambda: as_json(make()))
        kinds: dict[str, tuple[Process, Connect]] = {
            "bare grpc.aio echo": (echo, over_grpc(echo.address, "Submit", binary)),
            "bare uvicorn echo": (plain, over_http(f"127.0.0.1:{port}", "", PROTO, binary)),
            "GetPlan, gRPC": (server, over_grpc(server.address, "GetPlan", lambda: plan)),
            "GetPlan, HTTP": (server, over_http(server.http, "GetPlan", PROTO, lambda: plan)),
            "GetPlan, HTTP, JSON": (
                server,
                over_http(server.http, "GetPlan", JSON, lambda: b'{"survey": "bench"}'),
            ),
            "Submit, gRPC": (server, over_grpc(server.address, "Submit", binary)),
            "Submit, HTTP": (server, over_http(server.http, "Submit", PROTO, binary)),
            "Submit, HTTP, JSON": (server, over_http(server.http, "Submit", JSON, written)),
        }
        for calls in (8, 64):
            turns: dict[str, list[Turn]] = {name: [] for name in kinds}
            for number in range(rounds + 1):
                for name, (process, connect) in kinds.items():
                    taken = seconds if number else seconds / 4
                    found = asyncio.run(turn(process, connect, taken, calls))
                    if number:
                        turns[name].append(found)
            show(calls, turns)


def show(calls: int, turns: dict[str, list[Turn]]) -> None:
    """Print medians, beside those over the echo of the same round."""
    columns = ("calls/s", "of echo", "CPU us", "of echo")
    out = f"\n{calls:2} calls under way    " + "".join(f"{name:>9}" for name in columns) + "\n"
    echoes = turns["bare grpc.aio echo"]
    for name, found in turns.items():
        pairs = list(zip(found, echoes, strict=True))
        values = [
            statistics.median(one.rate for one in found),
            statistics.median(one.rate / echo.rate for one, echo in pairs),
            statistics.median(one.cpu for one in found),
            statistics.median(one.cpu / echo.cpu for one, echo in pairs),
        ]
        cells = zip(values, (".0f", ".2f", ".0f", ".2f"), strict=True)
        out += f"{name:22}" + "".join(f"{value:>9{form}}" for value, form in cells) + "\n"
    sys.stdout.write(out)
    sys.stdout.flush()


async def serve_bare(port: int) -> None:
    config = uvicorn.Config(bare, port=port, http="httptools", lifespan="off", log_config=None)
    config.access_log = False
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.05)
    sys.stdout.write("listening\n")
    sys.stdout.flush()
    await task


if __name__ == "__main__":
    if sys.argv[1:2] == ["--bare"]:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve_bare(int(sys.argv[2])))
    else:
        main()
