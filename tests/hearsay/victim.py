"""A device process to be killed: `python victim.py ADDRESS LEDGER` forks one for every line of
its input, "FIRST LAST", and prints its pid. It records the events FIRST to LAST, one person each,
writes "EVENT TAKEN" to the file LEDGER.log after each, and then only delivers.
"""

import os
import sys
import time

from hearsay import Client, Delivery

ADDRESS, FILE = sys.argv[1:]


def live(first: int, last: int) -> None:
    log = os.open(f"{FILE}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    client = Client(
        ADDRESS,
        "oracle",
        level="open",
        ledger=FILE,
        delivery=Delivery(batch_rows=16, batch_age=0.005, first_wait=0.01, longest_wait=0.05),
    )
    client.ready()
    for event in range(first, last):
        taken = client.person(str(event)).record(which=event)
        os.write(log, f"{event} {len(taken)}\n".encode())
        time.sleep(0.0005)
    client.flush(60)
    os.write(log, b"done 0\n")
    time.sleep(60)


for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        live(*map(int, line.split()))
        os._exit(0)
    sys.stdout.write(f"{pid}\n")
    sys.stdout.flush()
    os.waitpid(pid, 0)
    sys.stdout.write("gone\n")
    sys.stdout.flush()
