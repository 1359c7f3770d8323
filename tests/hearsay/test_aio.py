"""The client for asyncio."""

import asyncio
import contextlib
import time

from trainers import Steps, Trainer, declared

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


def test_a_participant_of_a_loop_takes_part_and_stops_when_cancelled() -> None:
    trainer = Trainer(declared())

    async def main() -> None:
        async with Client(trainer, "daily", epsilon=1.0, ledger=MEMORY) as client:
            participant = aio.Participant(client, "digits", steps={"linear": Steps()}, rho=10.0)
            await participant.grant()
            task = asyncio.create_task(participant.run())
            while not trainer.stored:
                await asyncio.sleep(0.005)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            while (progress := await participant.run_once()).reason is Reason.LOCKED:
                await asyncio.sleep(0.005)  # its thread ends by itself
            assert progress.reason is Reason.WAITING
            spent = participant.spending()
            assert spent is not None
            assert spent.used == 1
            await participant.revoke()
            assert (await participant.run_once()).reason is Reason.NO_CONSENT

    asyncio.run(main())
