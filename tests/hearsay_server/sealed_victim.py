"""A device process to be killed: `python sealed_victim.py COLLECTOR SHUFFLER LEDGER FIRST`.

It records an answer for each of ever more people, from number FIRST on, and writes each number to
LEDGER.log afterwards. Its clock is a day late, so that what it sends may leave the shuffler at
once.
"""

import os
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hearsay import Client, Delivery

COLLECTOR, SHUFFLER, FILE, FIRST = sys.argv[1:]


def yesterday() -> datetime:
    return datetime.now(UTC) - timedelta(days=1)


log = os.open(f"{FILE}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
client = Client(
    COLLECTOR,
    "daily",
    ledger=Path(FILE),
    epsilon=64.0,
    level="strict",
    consent=True,
    shuffler=SHUFFLER,
    clock=yesterday,
    delivery=Delivery(batch_rows=1, first_wait=0.05, longest_wait=0.2, max_reports=1_000_000),
)
sys.stdout.write("ready\n")
sys.stdout.flush()
assert client.wait_ready(60), client.status()
number = int(FIRST)
while True:
    person = client.person(f"person {number}")
    person.grant()
    person.record(smokes="yes")
    os.write(log, f"{number:9}\n".encode())
    number += 1
    time.sleep(0.01)
