"""Time and memory of one private training step, over those of plain PyTorch.

    python tests/benchmarks/dpsgd_speed.py [--rounds 30] [--models mlp cnn ...]

Modes take turns step by step in one process, and a ratio is the median of those within a turn, so
that a busy machine slows both of them. On a busy machine the ratio of the least times is a check,
and that of CPU times with `--threads 1` another: threads that wait for each other spin.

Memory is the growth of the peak, by model, batch, engine and five steps, in a fresh process for
each mode, in which a small batch has loaded libraries and modules before.

What glibc does with memory that is freed differs by half from run to run, in time and in size: it
may return it and get it anew, page by page, or keep it in pieces that nothing fits in. So while
times are taken it keeps all (`KEEPING`), in every mode, and where memory is measured it returns
blocks of 1 MiB and more (`RETURNING`). No process has both numbers of a line: as glibc is by
default, a private step of the Transformer is slower by a sixth, while plain PyTorch's is not, and
while all is kept its peak is larger. `--cold` leaves the allocator alone, and measures memory from
a process's start.

With a GPU it runs there, in float32 and bfloat16, with larger batches and models; times are those
of CUDA events, and memory is what torch allocated. Opacus's modes are measured where it is
installed.
"""

import argparse
import ctypes
import gc
import importlib.util
import math
import os
import re
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from dpsgd_models import MODELS
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from dpsgd import PrivacyEngine
from dpsgd.training.sampling import Physical

OPACUS = ["hooks", "functorch", "ghost"] if importlib.util.find_spec("opacus") else []
MODES = ["plain", "dpsgd", "dpsgd secure", *(f"opacus {mode}" for mode in OPACUS)]
KEEPING = {"MALLOC_TRIM_THRESHOLD_": "4000000000", "MALLOC_MMAP_THRESHOLD_": "4000000000"}
RETURNING = {"MALLOC_MMAP_THRESHOLD_": str(1 << 20)}


def stepper(name: str, mode: str, batch: int, device: str, half: bool) -> Callable[[], None]:
    """Return a function that makes one step."""
    torch.manual_seed(0)
    model = MODELS[name]
    module, x, y = (
        v.to(device) for v in (model.build(), model.inputs(batch), model.targets(batch))
    )
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    criterion: Callable[[Tensor, Tensor], Tensor] = nn.CrossEntropyLoss()
    loader = DataLoader(TensorDataset(torch.zeros(8 * batch)), batch_size=batch)
    options = {"noise_multiplier": 1.0, "max_grad_norm": 1.0}
    draw: Callable[[], None] = lambda: None  # noqa: E731
    if mode.startswith("dpsgd"):
        engine = PrivacyEngine(secure_mode=mode.endswith("secure"))
        engine.make_private(module=module, optimizer=optimizer, data_loader=loader, **options)
        part = Physical(batch, is_first=True, is_last=True, counts=True)
        run = engine._run

        def draw() -> None:
            run.drawn(part)

    elif mode.startswith("opacus"):
        from opacus import PrivacyEngine as Opacus

        kind = mode.removeprefix("opacus ")
        made = Opacus(accountant="rdp").make_private(
            module=module,
            optimizer=optimizer,
            data_loader=loader,
            criterion=criterion,
            poisson_sampling=False,
            grad_sample_mode=kind,
            **options,
        )
        module, optimizer = made[0], made[1]
        if kind == "ghost":
            criterion = made[2]

    def step() -> None:
        draw()
        optimizer.zero_grad()
        with torch.autocast(device, dtype=torch.bfloat16, enabled=half):
            loss = criterion(module(x), y)
        loss.backward()
        optimizer.step()

    return step


@dataclass(frozen=True)
class Taken:
    """What the steps of a mode took, in seconds, turn by turn."""

    wall: list[float]
    cpu: list[float]


def times(
    name: str, modes: Sequence[str], rounds: int, batch: int, device: str, half: bool
) -> dict[str, Taken]:
    """Return what a step takes in each mode, in turns, of which every other goes backwards.

    A mode that cannot run the model is left out, with a line that says why.
    """
    steps = {}
    for mode in modes:
        try:
            steps[mode] = stepper(name, mode, batch, device, half)
            steps[mode]()
        except Exception as error:  # of other libraries, of any type
            if mode in ("plain", "dpsgd"):
                raise
            steps.pop(mode, None)
            sys.stdout.write(f"\n{name}: {mode} fails, {str(error).splitlines()[0]}\n")
    taken = {mode: Taken([], []) for mode in steps}
    for turn in range(rounds + 3):
        for mode in steps if turn % 2 else reversed(steps):
            cpu = time.process_time()
            wall = _gpu_seconds(steps[mode]) if device == "cuda" else _seconds(steps[mode])
            if turn >= 3:
                taken[mode].wall.append(wall)
                taken[mode].cpu.append(time.process_time() - cpu)
    return taken


def _seconds(step: Callable[[], None]) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def _gpu_seconds(step: Callable[[], None]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    step()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3


def growth(name: str, mode: str, batch: int, device: str, half: bool, cold: bool) -> float:
    """Return the MB by which the peak grows; call it in a fresh process."""
    if not cold:
        step = stepper(name, mode, 16, device, half)
        step()
        step()
        del step
        gc.collect()
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step = stepper(name, mode, batch, device, half)
        for _ in range(5):
            step()
        torch.cuda.synchronize()
        return (torch.cuda.max_memory_allocated() - before) / 1e6
    if not cold:
        ctypes.CDLL(None).malloc_trim(0)
    time.sleep(1)  # for threads that were started to have loaded what they need
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak until now
    before = _resident("VmRSS")
    step = stepper(name, mode, batch, device, half)
    for _ in range(5):
        step()
    return (_resident("VmHWM") - before) / 1e3


def _resident(field: str) -> float:
    match = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match
    return float(match[1])


def growth_apart(name: str, mode: str, batch: int, device: str, half: bool, cold: bool) -> float:
    """Return `growth` of a fresh process, or nan where it fails: the median of three.

    Of nine if it is small, as single runs of the MLP differ by a third in any mode.
    """
    flags = [str(int(flag)) for flag in (half, cold)]
    command = [sys.executable, __file__, "--growth", name, mode, str(batch), device, *flags]
    command += ["--threads", str(torch.get_num_threads())]
    environment = dict(os.environ)
    if not cold:
        for variable in KEEPING:
            environment.pop(variable, None)
        environment |= RETURNING
    found = []
    while len(found) < (9 if found and statistics.median(found) < 20 else 3):
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if done.returncode:
            sys.stderr.write(done.stderr)
            return float("nan")
        found.append(float(done.stdout.split()[-1]))
    return statistics.median(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--models", nargs="*", choices=list(MODELS))
    parser.add_argument("--modes", nargs="*", choices=MODES, default=MODES)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--threads", type=int, default=min(2, torch.get_num_threads()))
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--no-time", action="store_true")
    parser.add_argument(
        "--cold", action="store_true", help="an allocator as it is, memory from the start"
    )
    parser.add_argument("--growth", nargs=6, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(arguments.threads)
    if arguments.growth:
        name, mode, batch, device, half, cold = arguments.growth
        found = growth(name, mode, int(batch), device, half == "1", cold == "1")
        sys.stdout.write(f"{found}\n")
        return
    gpu = torch.cuda.is_available()
    if not (gpu or arguments.cold or os.environ.items() >= KEEPING.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | KEEPING)
    device = "cuda" if gpu else "cpu"
    names = arguments.models or [name for name in MODELS if gpu or MODELS[name].goal]
    where = torch.cuda.get_device_name() if gpu else f"{arguments.threads} threads"
    sys.stdout.write(f"torch {torch.__version__}, {where}\n")
    for half in (False, True) if gpu else (False,):
        for name in names:
            batch = arguments.batch or MODELS[name].batch * (4 if gpu else 1)
            try:
                MODELS[name].build()
            except (ImportError, RuntimeError) as error:  # RuntimeError: built for another torch
                sys.stdout.write(f"\n{name}: not measured, {error}\n")
                continue
            table(name, arguments, batch, device, half)


def table(name: str, arguments: argparse.Namespace, batch: int, device: str, half: bool) -> None:
    """Print the modes of one model, times and growths also over those of plain PyTorch."""
    modes = ["plain", *(mode for mode in arguments.modes if mode != "plain")]
    nothing = Taken([math.nan] * 2, [math.nan] * 2)
    taken = dict.fromkeys(modes, nothing)
    if not arguments.no_time:
        taken = times(name, modes, arguments.rounds, batch, device, half)
        modes = list(taken)
    memory = dict.fromkeys(modes, math.nan)
    if not arguments.no_memory:
        for mode in modes:
            memory[mode] = growth_apart(name, mode, batch, device, half, arguments.cold)
    goal = MODELS[name].goal if device == "cpu" else None
    reach = "; to reach: {} / {}".format(*goal) if goal else ""
    sys.stdout.write(f"\n{name}, batch {batch}, {'bfloat16' if half else 'float32'}{reach}\n")
    sys.stdout.write(
        f"  {'':18} {'median':>10} {'ratio':>6} {'of least':>8} {'of CPU':>6} {'memory':>12}\n"
    )
    plain = taken["plain"]
    for mode in modes:
        own = taken[mode]
        sys.stdout.write(
            f"  {mode:18} {1e3 * statistics.median(own.wall):7.2f} ms"
            f" {_ratio(own.wall, plain.wall):6.2f} {min(own.wall) / min(plain.wall):8.2f}"
            f" {_ratio(own.cpu, plain.cpu):6.2f}"
            f" {memory[mode]:9.1f} MB {memory[mode] / memory['plain']:5.2f}\n"
        )
    sys.stdout.flush()


def _ratio(own: list[float], plain: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(own, plain, strict=True))


if __name__ == "__main__":
    main()
