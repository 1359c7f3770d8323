"""Two real processes over gloo: noise once, records of their own, and one model."""

import math
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from devices import CUDA
from oracle import by_loop
from two_processes import BATCH, RECORDS, inputs, model

from dpsgd.accounting import PoissonSampling, RDPAccountant, Relation

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("two_processes.py")
Seen = dict[str, Any]


@pytest.fixture(scope="module", params=["cpu", CUDA])
def ranks(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Seen, Seen]:
    folder = tmp_path_factory.mktemp("ranks")
    command = [sys.executable, "-W", "ignore", str(SCRIPT)]
    processes = [
        subprocess.Popen([*command, str(rank), str(folder), request.param]) for rank in range(2)
    ]
    assert [process.wait(timeout=300) for process in processes] == [0, 0]
    one, other = (torch.load(folder / f"{rank}.pt") for rank in range(2))
    return one, other


def test_noise_is_there_once_in_total_and_the_same_for_all(ranks: tuple[Seen, Seen]) -> None:
    one, other = (seen["noise"]["gradient"] for seen in ranks)
    assert torch.equal(one, other)
    values = one * (2 * BATCH) / (3.0 * 0.5)  # that of two processes would be off by sqrt(2)
    assert abs(float(values.std()) - 1) < 4 / math.sqrt(2 * values.numel())


def test_gradients_are_those_of_a_loop_over_what_all_drew(ranks: tuple[Seen, Seen]) -> None:
    module = model()
    steps = list(zip(*(seen["training"]["steps"] for seen in ranks), strict=True))
    assert len(steps) == RECORDS // (2 * BATCH)
    assert any(len(one["drawn"]) != len(other["drawn"]) for one, other in steps)
    for one, other in steps:
        assert torch.equal(one["gradient"], other["gradient"])
        for parameter, value in zip(module.parameters(), one["before"], strict=True):
            parameter.data.copy_(value)
        expected = torch.zeros_like(one["gradient"])
        drawn = inputs()[one["drawn"] + other["drawn"]]
        for sample in by_loop(module, [drawn], lambda out: (out**2).sum()):
            whole = torch.cat([g.flatten() for g in sample])
            expected += whole * min(1.0, 0.5 / float(whole.norm())) / (2 * BATCH)
        torch.testing.assert_close(one["gradient"], expected, rtol=1e-4, atol=1e-6)


def test_processes_draw_different_records_each_with_the_rate_that_is_accounted_for(
    ranks: tuple[Seen, Seen],
) -> None:
    one, other = (seen["sampling"]["drawn"] for seen in ranks)
    assert not {i for batch in one for i in batch} & {i for batch in other for i in batch}
    counts = Counter(i for batch in one + other for i in batch)
    rate, batches = 2 * BATCH / RECORDS, len(one)
    deviation = math.sqrt(rate * (1 - rate) / batches)
    assert len(counts) == RECORDS
    assert all(abs(n / batches - rate) < 4.5 * deviation for n in counts.values())
    sizes = [len(a) + len(b) for a, b in zip(one, other, strict=True)]
    variance = sum((size - 2 * BATCH) ** 2 for size in sizes) / batches
    assert variance == pytest.approx(RECORDS * rate * (1 - rate), rel=4 * math.sqrt(2 / batches))


def test_epsilon_is_that_of_the_whole_batch(ranks: tuple[Seen, Seen]) -> None:
    reference = RDPAccountant(Relation.ADD_REMOVE)
    steps = RECORDS // (2 * BATCH)
    sampling = PoissonSampling(2 * BATCH / RECORDS)
    reference.step(noise_multiplier=1e-9, sampling=sampling, steps=steps)
    for seen in ranks:
        history = seen["training"]["history"]["accountant"]["history"]
        assert history == [event.to_dict() for event in reference.history]
        assert 1.999 < seen["calibrated"]["epsilon"] <= 2.0


def test_a_norm_that_adapts_is_the_same_for_all(ranks: tuple[Seen, Seen]) -> None:
    one, other = (seen["adaptive"] for seen in ranks)
    assert one["norms"] == other["norms"]
    assert len(set(one["norms"])) == len(one["norms"])
    assert all(torch.equal(a, b) for a, b in zip(one["weights"], other["weights"], strict=True))


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("noise", "processes must agree on noise_multiplier"),
        ("norm", "processes must agree on max_grad_norm"),
        ("batch", "processes must agree on batch_size"),
        ("secure", "processes must agree on secure_mode"),
        ("fixed", 'several processes sample by "poisson"'),
        ("unused", "leave find_unused_parameters"),
        ("apart", "each process would train apart"),
        ("inside", "wrap the whole module, and nothing inside"),
        ("buffers", "set broadcast_buffers=False"),
        ("sharded", "its parameters spread over devices: use DistributedDataParallel"),
    ],
    ids=lambda value: value.split()[0],
)
def test_processes_that_do_not_fit_are_refused_in_each(
    ranks: tuple[Seen, Seen], what: str, message: str
) -> None:
    for seen in ranks:
        assert message in seen["refusals"][what]
