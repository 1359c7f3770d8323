"""A device process to be killed: `python split_victim.py SERVER HELPER_KEY LEDGER FIRST`.

It records "bus" for each of ever more people, from number FIRST on, and writes each number to
LEDGER.log afterwards.
"""

import os
import sys
import time
from pathlib import Path

from hearsay import Client, Delivery

SERVER, KEY, FILE, FIRST = sys.argv[1:]

log = os.open(f"{FILE}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
client = Client(
    SERVER,
    "commute",
    ledger=Path(FILE),
    epsilon=1.0,
    consent=True,
    helper_key=KEY,
    delivery=Delivery(batch_rows=1, first_wait=0.05, longest_wait=0.2, max_reports=1_000_000),
)
sys.stdout.write("ready\n")
sys.stdout.flush()
assert client.wait_ready(60), client.status()
number = int(FIRST)
while True:
    person = client.person(f"person {number}")
    person.grant()
    person.record(way="bus")
    os.write(log, f"{number:9}\n".encode())
    number += 1
    time.sleep(0.01)
