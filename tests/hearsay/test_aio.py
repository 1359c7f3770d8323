"""The client for asyncio."""

import asyncio
import time

from hearsay import MEMORY, Delivery, Reason
from hearsay.aio import Client
from support import Server


def test_the_loop_goes_on_while_a_client_waits(server: Server) -> None:
    async def main() -> None:
        async with Client(
            server.target,
            "health",
            level="strict",
            epsilon=64.0,
            ledger=MEMORY,
            delivery=Delivery(first_wait=0.02, longest_wait=0.05),
        ) as client:
            assert client.record(smokes="no").taken == ()
            assert client.status().reason is Reason.NO_CONSENT
            await client.grant()
            assert await client.wait_ready()
            assert client.record(smokes="no", age=30).taken == ("smokes", "age")
            other = client.person("other", level="open")
            await other.grant()
            assert other.record(smokes="no").taken == ("smokes",)
            assert len(client.outbox().reports) == 2
            assert [s.reports for s in client.spendings()] == [1, 1]
            assert client.delivery.oldest is not None
            server.stop()
            begin = time.monotonic()
            flushing = asyncio.ensure_future(client.flush(timeout=0.5))
            turns = 0
            while not flushing.done():
                await asyncio.sleep(0.01)
                turns += 1
            assert turns > 10
            assert time.monotonic() - begin < 5
            assert not flushing.result()
            server.start()
            assert await client.flush(timeout=20)
            assert client.counters["stored"] == 1
            await client.revoke()
            assert client.status().reason is Reason.NO_CONSENT

    asyncio.run(main())
    assert server.show("health").status.records == 2
