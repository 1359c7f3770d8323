"""The demo's devices: processes that import the client SDK and little else."""

import multiprocessing
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from multiprocessing.pool import Pool

from hearsay import MEMORY, Agreement, Client, Unreachable
from ldp.testing import SeededCoins

_PROCESSES = min(os.cpu_count() or 1, 4)
_THREADS = 8  # of each process; a device mostly waits for the server
_AT_ONCE = 128  # people that one task of a process plays

Answer = str | float | Sequence[str] | Mapping[str, float]
"""A value, a number, the items of a set, or ratings by key."""

Answers = Mapping[str, Answer]


@dataclass(frozen=True)
class Respondent:
    """One person: a number, a privacy level, the true answers by attribute name, and the maps
    that they chose, by attribute name; when they answer, None for now; and the public properties
    of their device."""

    number: int
    level: str
    answers: Answers
    maps: Mapping[str, str]
    moment: datetime | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Sent:
    """The serialised `Batch` that left one respondent's device."""

    respondent: Respondent
    batch: bytes


def start() -> Pool:
    """Start the processes; the pool that is returned ends them as a context manager."""
    # By spawn, as a fork would copy the caller's locks. Ctrl-C is for the caller, who ends them.
    context = multiprocessing.get_context("spawn")
    return context.Pool(_PROCESSES, signal.signal, (signal.SIGINT, signal.SIG_IGN))


def deliver(
    pool: Pool,
    address: str,
    plan: bytes,
    respondents: Sequence[Respondent],
    seed: int | None,
) -> Iterator[list[Sent | None]]:
    """Let every respondent record and send; yield their batches, some respondents at a time.

    None stands for a person of whose answered attributes none was drawn. Raises `Unreachable`
    where a device could not deliver.
    """
    parts = [respondents[i : i + _AT_ONCE] for i in range(0, len(respondents), _AT_ONCE)]
    return pool.imap(partial(_play, address, plan, seed), parts)


def _play(
    address: str, plan: bytes, seed: int | None, respondents: Sequence[Respondent]
) -> list[Sent | None]:
    # As `hearsay codegen` would write it: the demo's devices ship with their agreement.
    agreement = Agreement.on(plan)
    with ThreadPoolExecutor(_THREADS) as threads:
        return list(threads.map(partial(_live, address, agreement, seed), respondents))


def _live(
    address: str, agreement: Agreement, seed: int | None, respondent: Respondent
) -> Sent | None:
    """Play one device, a client with its own ledger and level; return its batch, or None."""
    with Client(
        address,
        agreement,
        level=respondent.level,
        maps=respondent.maps,
        properties=respondent.properties,
        ledger=MEMORY,
        consent=True,
        strict=True,
        coins=None if seed is None else SeededCoins((seed << 32) + respondent.number),
        clock=lambda: respondent.moment or datetime.now(UTC),
    ) as client:
        taken = client.record(**respondent.answers)
        if not client.flush() or client.counters.get("stored", 0) != bool(taken):
            raise Unreachable(
                f"respondent {respondent.number} could not deliver: {dict(client.counters)}"
            )
        if not taken:
            return None
        return Sent(respondent, client.outbox().sent[0].batch.SerializeToString())
