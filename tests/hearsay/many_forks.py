"""A process that forks again and again while it sends: `python many_forks.py ADDRESS LEDGER FORKS`.

Each child answers once and sends it by itself, within a time after which it is killed.
"""

import os
import signal
import sys
import time

from hearsay import Client, Delivery, Reason

ADDRESS, FILE, FORKS = sys.argv[1], sys.argv[2], int(sys.argv[3])

client = Client(
    ADDRESS,
    "health",
    level="strict",
    epsilon=64.0,
    ledger=FILE,
    delivery=Delivery(batch_age=0.001, first_wait=0.001, longest_wait=0.01),
)
assert client.wait_ready(), client.status()


def record(name: str) -> None:
    person = client.person(name, level="strict")
    person.grant()
    while not person.record(smokes="no"):  # the other process has the file
        assert person.status().reason in (Reason.LOCKED, Reason.READY), person.status()


for number in range(FORKS):
    for i in range(4):
        record(f"{number}.{i}")
        time.sleep(0.001)
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)
        record(f"{number} in the child")
        os._exit(0 if client.flush(20) else 1)
    _, status = os.waitpid(pid, 0)
    assert status == 0, f"child {number} ended with {status}"
assert client.flush(20)
