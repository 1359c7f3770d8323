"""Eight threads that record while the process forks: `python forker.py ADDRESS LEDGER EVENTS`.

The parent and each of its four children record every event, from eight threads each, all in
another order, and flush.
"""

import os
import random
import sys
import threading
import time

from hearsay import Client, Delivery

ADDRESS, FILE, EVENTS = sys.argv[1], sys.argv[2], int(sys.argv[3])

client = Client(
    ADDRESS,
    "oracle",
    level="open",
    ledger=FILE,
    delivery=Delivery(batch_rows=16, batch_age=0.005, first_wait=0.01, longest_wait=0.05),
)
assert client.ready(), client.status()


def work(seed: int) -> None:
    events = list(range(EVENTS))
    random.Random(seed).shuffle(events)
    for event in events:
        client.person(str(event)).record(which=event)


def all_threads(seed: int) -> list[threading.Thread]:
    threads = [threading.Thread(target=work, args=(8 * seed + i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    return threads


threads = all_threads(0)
children = []
for number in range(1, 5):
    time.sleep(0.05)
    pid = os.fork()
    if pid == 0:
        for thread in all_threads(number):
            thread.join()
        os._exit(0 if client.flush(60) else 1)
    children.append(pid)
for thread in threads:
    thread.join()
assert client.flush(60)
for pid in children:
    _, status = os.waitpid(pid, 0)
    assert status == 0, status
