"""The client for asyncio: methods that may wait long, as for the network, are coroutines."""

import asyncio
import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self

import hearsay as blocking
from hearsay.choices import Caps
from hearsay.plans.plan import Plan
from hearsay.recording.ledger import Recorded, Spending
from hearsay.recording.outbox import Outbox
from hearsay.sending.sender import DeliveryState
from hearsay.trouble import Status

if TYPE_CHECKING:
    from hearsay import federated

_P = ParamSpec("_P")


def _arguments_of(
    source: Callable[_P, object],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, _P], None]]:
    def same(target: Callable[..., None]) -> Callable[Concatenate[Any, _P], None]:
        target.__doc__ = source.__init__.__doc__
        return target

    return same


class Person:
    """A `hearsay.Person` whose methods that wait are coroutines, with the same guarantee."""

    def __init__(self, person: blocking.Person) -> None:
        self._person = person

    def record(self, /, **answers: object) -> Recorded:
        """Randomise answers and queue them, as `hearsay.Person.record` does."""
        return self._person.record(**answers)

    def status(self) -> Status:
        """Return whether answers are taken now, and if not, why."""
        return self._person.status()

    def spendings(self) -> tuple[Spending, ...]:
        """Return the epsilon spent and left, by attribute."""
        return self._person.spendings()

    async def wait_ready(self, timeout: float = 10.0) -> bool:
        """Wait until there is a plan; return whether answers are taken now."""
        return await asyncio.to_thread(self._person.wait_ready, timeout)

    async def grant(self) -> None:
        """Note the person's consent in the ledger."""
        await asyncio.to_thread(self._person.grant)

    async def revoke(self, *, forget: bool = False) -> None:
        """Revoke the person's consent in the ledger, and drop their waiting reports."""
        await asyncio.to_thread(self._person.revoke, forget=forget)

    async def set_caps(self, caps: Caps) -> None:
        """Set the person's own caps."""
        await asyncio.to_thread(self._person.set_caps, caps)

    @property
    def level(self) -> str:
        """The person's level, as `hearsay.Person.level`."""
        return self._person.level

    @property
    def record_epsilon(self) -> float:
        """The most epsilon that one of the person's records spends."""
        return self._person.record_epsilon


class Client(Person):
    """A `hearsay.Client` whose methods that wait are coroutines, with the same guarantee.

    `record` is a plain call: it takes a tenth of a millisecond and waits for no network. One
    background thread sends, whatever the loop does.
    """

    @_arguments_of(blocking.Client)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._client = blocking.Client(*args, **kwargs)
        super().__init__(self._client)

    def person(
        self,
        name: str,
        *,
        level: str | None = None,
        levels: Mapping[str, str] = MappingProxyType({}),
        maps: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Person:
        """Return one of several people whose answers this client records, as
        `hearsay.Client.person` does."""
        person = self._client.person(
            name, level=level, levels=levels, maps=maps, properties=properties
        )
        return Person(person)

    async def trust_clock(self) -> None:
        """Accept this device's clock as right, as `hearsay.Client.trust_clock` does."""
        await asyncio.to_thread(self._client.trust_clock)

    async def flush(self, timeout: float = 30.0) -> bool:
        """Send all waiting reports; return whether all were answered within `timeout` seconds."""
        return await asyncio.to_thread(self._client.flush, timeout)

    async def close(self, timeout: float = 10.0) -> bool:
        """Flush, then disconnect; return whether no report is left."""
        return await asyncio.to_thread(self._client.close, timeout)

    def outbox(self) -> Outbox:
        """Return the waiting reports and sent batches, decoded."""
        return self._client.outbox()

    @property
    def plan(self) -> Plan:
        """The survey's plan; raises as `hearsay.Client.plan` where there is none."""
        return self._client.plan

    @property
    def delivery(self) -> DeliveryState:
        """When a batch was last answered, the last error, and how long the oldest report waits."""
        return self._client.delivery

    @property
    def counters(self) -> Mapping[str, int]:
        """Numbers of records, batches, and dropped answers and reports, by outcome or reason."""
        return self._client.counters

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


class Participant:
    """A `hearsay.federated.Participant` whose methods that wait are coroutines, with the same
    guarantee. Its step runs in a thread, not in the loop."""

    def __init__(
        self,
        client: Person,
        training: str,
        *,
        steps: Mapping[str, "federated.Step"],
        rho: float | None = None,
        epsilon: float | None = None,
        record_level: float | None = None,
        revision: str | None = None,
        step_seconds: float | None = None,
        consent: bool = False,
    ) -> None:
        """Prepare to take part, as `hearsay.federated.Participant` does."""
        from hearsay import federated  # takes 20 ms, which apps without a training need not wait

        self._participant = federated.Participant(
            client._person,
            training,
            steps=steps,
            rho=rho,
            epsilon=epsilon,
            record_level=record_level,
            revision=revision,
            step_seconds=step_seconds,
            consent=consent,
        )

    async def run(
        self, on_progress: "Callable[[federated.Progress], None] | None" = None
    ) -> "federated.Progress":
        """Take part until there is nothing left to do; a task that is cancelled stops after the
        call to the server, or the step, that is under way. `on_progress` is called in a thread."""
        stop = threading.Event()
        try:
            return await asyncio.to_thread(self._participant.run, stop, on_progress)
        finally:
            stop.set()

    async def run_once(self) -> "federated.Progress":
        """Send what waits; otherwise look for a round, and take part in it."""
        return await asyncio.to_thread(self._participant.run_once)

    async def grant(self) -> None:
        """Note the person's consent to this training in the ledger."""
        await asyncio.to_thread(self._participant.grant)

    async def revoke(self) -> None:
        """Revoke the person's consent to this training, and delete updates that wait."""
        await asyncio.to_thread(self._participant.revoke)

    def spending(self) -> "federated.Participation | None":
        """Return what the person spent on this training; None before the first participation."""
        return self._participant.spending()
