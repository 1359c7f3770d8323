"""Records are split, sealed and opened as protos/conformance/split.json says."""

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_conformance import value_of
from vectors import hpke as reference
from vectors.notation import Script

from hearsay import InvalidInput
from hearsay.plans.plan import Plan, parse
from hearsay.sealed import hpke, shares
from ldp.two_servers import account
from ldp.two_servers import shares as additive
from ldp.two_servers.skellam import skellam

Case = Mapping[str, Any]

VECTORS: Mapping[str, Sequence[Case]] = json.loads(
    (Path(__file__).parents[2] / "protos" / "conformance" / "split.json").read_text()
)


def note(case: Case) -> str:
    return str(case["note"])


def coins_of(case: Case) -> Script:
    if "stream" in case:
        return Script(stream=bytes.fromhex(case["stream"]))
    return Script(bytes.fromhex(case["seed"]))


@pytest.mark.parametrize("case", VECTORS["noise"], ids=lambda case: "/".join(case["variance"]))
def test_noise_is_drawn_as_the_vectors_say(case: Case) -> None:
    variance, values = Fraction(*map(int, case["variance"])), case["values"]
    coins = coins_of(case)
    assert skellam(variance, len(values), coins).tolist() == values
    assert coins.used == case["used"]


@cache
def cumulated(mean: Fraction) -> list[int]:
    """Return sums of mean**k / k! for k = 0, 1, ..., times 2**400, until nothing is added.

    From k = 0 up: the tables under test begin at the mode.
    """
    weight, total, sums = 1 << 400, 0, []
    while weight:
        total += weight
        sums.append(total)
        weight = weight * mean.numerator // (mean.denominator * len(sums))
    return sums


def by_the_distribution(mean: Fraction, digits: int, bits: int) -> int:
    """Return the least k with digits / 2**bits < F(k), the Poisson distribution function."""
    sums = cumulated(mean)
    return bisect_right(sums, digits * sums[-1] >> bits)


def test_noise_is_what_the_distribution_function_says() -> None:
    for case in VECTORS["noise"]:
        mean = Fraction(*map(int, case["variance"])) / 2
        stream = coins_of(case)._bytes(case["used"])
        words = [int.from_bytes(stream[at : at + 8], "little") for at in range(0, len(stream), 8)]
        count = len(case["values"])
        more, words = words[2 * count :], words[: 2 * count]
        if more:  # the first draw was on a limit, and goes on with the further words
            digits = sum(w << 64 * i for i, w in enumerate(reversed([words[0], *more])))
            drawn = [by_the_distribution(mean, digits, 64 * (1 + len(more)))]
        else:
            drawn = [by_the_distribution(mean, words[0], 64)]
        drawn += [by_the_distribution(mean, word, 64) for word in words[1:]]
        assert (np.array(drawn[:count]) - drawn[count:]).tolist() == case["values"]


@pytest.mark.parametrize("case", VECTORS["plans"], ids=note)
def test_plans_with_two_servers_are_accepted_and_refused(case: Case) -> None:
    data = bytes.fromhex(case["plan"])
    if not case["accepted"]:
        with pytest.raises(InvalidInput):
            parse(data)
        return
    plan = parse(data)
    two = shares.of(plan)
    assert (list(plan.recorded), two.layout.dim) == (case["recorded"], case["cells"])
    (level,) = plan.levels.values()
    assert account.epsilon_of(two.rho, two.delta) <= level.epsilon * (1 + 1e-12)


def record_of(case: Case) -> tuple[Plan, dict[str, Any]]:
    values = {name: value_of(value) for name, value in case["values"].items()}
    return parse(bytes.fromhex(case["plan"])), values


def test_records_become_the_cells_and_shares_of_the_vectors() -> None:
    for case in VECTORS["records"]:
        plan, values = record_of(case)
        two, coins = shares.of(plan), coins_of(case)
        cells = two.layout.randomize(values, two.variance, coins)
        assert cells.tolist() == case["cells"]
        seed, rest = additive.split(cells, two.bits, coins)
        assert (seed.hex(), rest.hex()) == (case["share_a"], case["share_b"])
        assert coins.used == case["used"]


def test_shares_are_sealed_and_opened_as_the_vectors_say() -> None:
    for case in VECTORS["records"]:
        plan, _ = record_of(case)
        by, where = shares.splitting(plan), (case["period"], bytes.fromhex(case["id"]))
        code = bytes.fromhex(case["code"])
        parts = {"leader": code[: shares.LEADER_BYTES], "helper": code[shares.LEADER_BYTES :]}
        for role, key, share in (
            ("leader", by.leader_key, case["share_a"]),
            ("helper", by.helper_key, case["share_b"]),
        ):
            info = shares.info(role, by, *where)  # type: ignore[arg-type]
            assert info.hex() == case["infos"][role]
            ephemeral = bytes.fromhex(case["ephemerals"][role])
            assert reference.sealed(bytes.fromhex(share), key, info, ephemeral) == parts[role]
            own = hpke.private_key(bytes.fromhex(case["privates"][role]))
            opened = shares.opened(by, role, *where, parts[role], own)  # type: ignore[arg-type]
            assert opened.hex() == share
