"""A device process to be killed: `python victim.py ADDRESS LEDGER KIND EVENTS` forks one for
every line of its input, "FIRST LAST", and prints its pid. It records the events FIRST to LAST,
writes each to the file LEDGER.log afterwards, and then only delivers.
"""

import os
import sys
import time

from witness import FAST, Clock, Oracle

ADDRESS, FILE, KIND, EVENTS = sys.argv[1:]
oracle = Oracle(KIND, int(EVENTS))


def live(first: int, last: int) -> None:
    log = os.open(f"{FILE}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    clock = Clock()
    clock.day = first // oracle.persons
    client = oracle.client(ADDRESS, FILE, clock, delivery=FAST)
    client.wait_ready()
    for event in range(first, last):
        oracle.record(client, clock, event)
        os.write(log, f"{event:9}\n".encode())
        time.sleep(0.0005)
    client.flush(60)
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
