"""The client for asyncio."""

import asyncio
import time

import hearsay
from hearsay import MEMORY, Delivery, Reason, aio
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
            assert (client.level, client.record_epsilon) == ("strict", 1.0)
            assert client.plan.survey == "health"
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


def test_everything_has_the_name_that_it_has_without_asyncio() -> None:
    def public(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    of_the_process = {"before_fork", "after_fork", "end"}
    assert public(aio.Person) == public(hearsay.Person)
    assert public(aio.Client) == public(hearsay.Client) - of_the_process
    assert {"wait_ready", "spendings", "set_caps"} <= public(hearsay.Person)
