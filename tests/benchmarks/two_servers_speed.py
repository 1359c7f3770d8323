"""What sums over two servers cost: the sums themselves beside numpy's, and a device's record.

    python tests/benchmarks/two_servers_speed.py [--smoke]

Each turn sums the same vectors in each way, one after the other, on one core; ratios are medians
over the turns.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np

from hearsay.plans.plan import Plan, parse
from hearsay.sealed import hpke, shares
from hearsay_server.surveys import sealing
from hearsay_server.surveys import survey as surveys
from ldp import Coins
from ldp.two_servers.shares import split, sum_rests, sum_seeds

DIM, BITS = 8192, 32

SURVEY = """
name = "commute"
[levels]
standard = 1.0
[two_servers]
helper_key = "{key}"
delta = 1e-6
[[attributes]]
name = "way"
categorical = {{ values = ["bus", "train", "car", "foot"] }}
[[attributes]]
name = "minutes"
numeric = {{ low = 0, high = 120 }}
"""


def show(line: str) -> None:
    sys.stdout.write(line + "\n")


def timed(work: Callable[[], object]) -> float:
    """Return the seconds of processor time that a call takes."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


def plan_of(helper: bytes) -> tuple[Plan, bytes]:
    """Return a registered plan, and the leader's private key."""
    survey = surveys.from_toml(SURVEY.format(key=helper.hex()), "bench")
    made = sealing.with_keys(surveys.resolve(survey), 0)
    return parse(made.plan), made.privates[0]


def device(count: int) -> None:
    """Print what one record costs: to write and split it, to seal it, and to open a share."""
    private, public = hpke.new_pair()
    plan, leader = plan_of(public)
    two, coins, id_ = shares.of(plan), Coins(), bytes(16)
    keys = {"leader": hpke.private_key(leader), "helper": hpke.private_key(private)}
    answers = {"way": 1, "minutes": 0.3}
    two.layout.randomize(answers, two.variance, coins)  # which makes the tables of the noise
    times: dict[str, list[float]] = {"write and split": [], "seal": [], "open the helper's": []}
    for _ in range(count):
        made: list[tuple[bytes, bytes]] = []
        times["write and split"].append(
            timed(
                lambda made=made: made.append(  # type: ignore[misc]
                    split(two.layout.randomize(answers, two.variance, coins), two.bits, coins)
                )
            )
        )
        begin = time.process_time()
        code = shares.seal(shares.splitting(plan), "once", id_, *made[0])
        times["seal"].append(time.process_time() - begin)
        begin = time.process_time()
        sealed = code[shares.LEADER_BYTES :]
        shares.opened(shares.splitting(plan), "helper", "once", id_, sealed, keys["helper"])
        times["open the helper's"].append(time.process_time() - begin)
    for name, each in times.items():
        show(f"{name}: {1e6 * statistics.median(each):.0f} us of CPU a record")


def sums(vectors: int, turns: int) -> None:
    """Print the ratios of both servers' sums to numpy's of the same array."""
    rng = np.random.default_rng(1)
    rests = rng.integers(0, 1 << BITS, (vectors, DIM), dtype=np.uint32)
    seeds = [rng.bytes(32) for _ in range(vectors)]
    as_bytes = [row.tobytes() for row in rests]
    ratios: dict[str, list[float]] = {"the helper's shares": [], "the leader's shares": []}
    for _ in range(turns):
        base = timed(lambda: rests.sum(axis=0, dtype=np.uint32))
        helper = timed(lambda: sum_rests(as_bytes, DIM, BITS))
        ratios["the helper's shares"].append(helper / base)
        ratios["the leader's shares"].append(timed(lambda: sum_seeds(seeds, DIM, BITS)) / base)
    show(f"sums of {vectors:,} vectors of {DIM:,} numbers of {BITS} bits, over numpy's sum:")
    for name, each in ratios.items():
        show(f"  {name}: {statistics.median(each):.2f}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--smoke", action="store_true", help="a few vectors, for a test")
    smoke = parser.parse_args().smoke
    sums(100 if smoke else 10_000, 3 if smoke else 9)
    device(20 if smoke else 2000)


if __name__ == "__main__":
    main()
