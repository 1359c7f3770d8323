"""Eight threads that record while the process forks: `python forker.py ADDRESS LEDGER KIND EVENTS`.

On each day the parent and each of its four children record every event, from eight threads each,
all in another order; then the parent records what every process found locked.
"""

import multiprocessing
import os
import random
import sys
import threading
import time

from witness import FAST, Clock, Oracle

ADDRESS, FILE, KIND, EVENTS = sys.argv[1:]
oracle = Oracle(KIND, int(EVENTS))
DAYS = oracle.events // oracle.persons
CHILDREN = 4

clock = Clock()
client = oracle.client(ADDRESS, FILE, clock, delivery=FAST)
assert client.wait_ready(), client.status()
everybody = multiprocessing.get_context("fork").Barrier(1 + CHILDREN)


def work(day: int, seed: int) -> None:
    events = list(range(day * oracle.persons, (day + 1) * oracle.persons))
    random.Random(seed).shuffle(events)
    for event in events:
        oracle.record(client, clock, event)


def all_threads(day: int, seed: int) -> list[threading.Thread]:
    threads = [threading.Thread(target=work, args=(day, 8 * seed + i)) for i in range(8)]
    for thread in threads:
        thread.start()
    return threads


threads = all_threads(0, 0)
children: list[int] = []
number = 0
for number in range(1, CHILDREN + 1):
    time.sleep(0.05)
    pid = os.fork()
    if pid == 0:
        threads, children = all_threads(0, number), []
        break
    children.append(pid)
for day in range(DAYS):
    if day:
        clock.day = day
        threads = all_threads(day, number)
    for thread in threads:
        thread.join()
    everybody.wait(60)
    if children:
        work(day, 0)
    everybody.wait(60)
flushed = client.flush(60)
if not children:
    os._exit(0 if flushed else 1)
assert flushed
for pid in children:
    _, status = os.waitpid(pid, 0)
    assert status == 0, status
