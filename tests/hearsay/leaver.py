"""A process that ends with a report waiting: `python leaver.py ADDRESS LEDGER`.

It writes the monotonic clock's time to stdout as its last line of code runs.
"""

import sys
import time

from hearsay import Client, Delivery

ADDRESS, FILE = sys.argv[1:]

client = Client(
    ADDRESS,
    "health",
    level="strict",
    epsilon=1.0,
    ledger=FILE,
    consent=True,
    # The report waits for the exit, unless it takes a minute to come.
    delivery=Delivery(exit_timeout=1.0, batch_age=60.0),
)
assert client.wait_ready(), client.status()
assert client.record(smokes="no").taken
sys.stdout.write(str(time.monotonic()))
