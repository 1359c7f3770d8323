"""A worker of a backend: `python worker.py PLAN LEDGER NUMBER RATE SECONDS`.

It records answers of people of its own at a rate a second (0: as fast as it can), and prints its
counters as JSON.
"""

import json
import os
import sys
import time
from collections import Counter
from pathlib import Path

os.environ["HEARSAY_TESTING"] = "1"

from hearsay import Client, Delivery
from hearsay.testing import RecordingTransport

PLAN, LEDGER = Path(sys.argv[1]), sys.argv[2]
NUMBER, RATE, SECONDS = int(sys.argv[3]), float(sys.argv[4]), float(sys.argv[5])

transport = RecordingTransport(PLAN.read_bytes())
became: Counter[str] = Counter()
with Client(
    transport,
    "survey",
    ledger=LEDGER,
    level="standard",
    epsilon=1.0,
    consent=True,
    delivery=Delivery(max_reports=1_000_000, max_bytes=1 << 30),
) as client:
    assert client.wait_ready(30)
    begin, slowest = time.monotonic(), 0.0
    person = 0
    while (passed := time.monotonic() - begin) < SECONDS:
        if RATE and person > passed * RATE:
            time.sleep(min(1 / RATE, person / RATE - passed))
            continue
        person += 1
        somebody = client.person(f"{NUMBER} {person}", level="standard")
        somebody.grant()
        before = time.monotonic()
        recorded = somebody.record(answer="yes")
        slowest = max(slowest, time.monotonic() - before)
        became.update(["taken"] if recorded else list(recorded.dropped.values()))
    assert client.flush(60)
sent = {batch.id.hex(): batch.rows for batch in transport.batches}
sys.stdout.write(json.dumps({"became": became, "sent": sent, "slowest": slowest}))
