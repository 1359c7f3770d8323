"""The TypeScript SDK in a process of its own, and random mechanisms to compare it with Python's."""

import json
import math
import os
import random
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

from ldp import (
    HRR,
    KRR,
    LOLOHA,
    RAPPOR,
    ChannelTable,
    Coins,
    CountMeanSketch,
    DBitFlip,
    HadamardCountMeanSketch,
    HadamardResponse,
    HybridMechanism,
    InvalidInput,
    KRRChain,
    LaplaceMechanism,
    LocalHashing,
    Mechanism,
    OneBitMean,
    OrderedExponential,
    PiecewiseMechanism,
    PolicyUnary,
    PrefixHashing,
    ProjectiveGeometry,
    SetBits,
    SetSelection,
    SquareWave,
    SubsetSelection,
    SummingHistogram,
    UnaryChain,
    UnaryEncoding,
    build,
)
from ldp.core.exact import ONE, include_threshold
from ldp.core.policy import Policy
from ldp.mechanisms import SetMechanism
from ldp.mechanisms.numbers.mean import MeanMechanism
from ldp.planning import mean_design
from ldp.planning.design import design

REPORTS = int(os.environ.get("HEARSAY_FUZZ_REPORTS", "20000"))
"""How many reports the long comparison draws: HEARSAY_FUZZ_REPORTS=1000000 for the full one."""

WEB = Path(__file__).parents[2] / "client" / "web"


def why_missing() -> str:
    """Return why the TypeScript SDK cannot be asked here; "" where it can."""
    if shutil.which("node") is None:
        return "node is not installed"
    built = WEB / "dist" / "plans" / "plan.js"
    if not built.exists():
        return "client/web is not built: npm ci && npm run build there"
    newest = max(source.stat().st_mtime for source in (WEB / "src").rglob("*.ts"))
    if newest > built.stat().st_mtime:
        return "client/web was changed since it was built: npm run build there"
    return ""


class Twin:
    """The TypeScript SDK in one long-lived process, which answers one question at a time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            ["node", str(WEB / "test" / "answer.mjs")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.communicate(timeout=10)  # closes its input, whose end ends it

    def ask(self, ask: str, **question: Any) -> dict[str, Any]:
        """Return the answer to a question; {"refused": message} for an `InvalidInput`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"ask": ask, **question}) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        assert "failed" not in answer, answer["failed"]
        return answer


class ScriptedCoins(Coins):
    """Coins whose stream is SHA-256(seed, 0), SHA-256(seed, 1), ..., and that count used bytes."""

    def __init__(self, seed: bytes) -> None:
        self._seed, self._block, self._left, self.used = seed, 0, b"", 0

    def _bytes(self, count: int) -> bytes:
        self.used += count
        parts, have = [self._left], len(self._left)
        while have < count:
            parts.append(sha256(self._seed + self._block.to_bytes(8, "little")).digest())
            self._block += 1
            have += 32
        stream = b"".join(parts)
        self._left = stream[count:]
        return stream[:count]


def in_hex(x: float) -> str:
    """Return a double as 16 hexadecimal digits."""
    return struct.pack(">d", x).hex()


def question(mechanism: Mechanism) -> dict[str, Any]:
    """Return a mechanism as the twin takes it."""
    return as_question(mechanism.name, mechanism.epsilon, mechanism.integers)


def as_question(name: str, epsilon: float, integers: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """Return a name, an epsilon and integers, which may be no mechanism, as the twin takes them."""
    listed = {field: [str(value) for value in values] for field, values in integers.items()}
    return {"name": name, "epsilon": in_hex(epsilon), "integers": listed}


def values_of(mechanism: Mechanism, n: int, rng: random.Random) -> list[Any]:
    """Return values in the mechanism's domain, its ends among them."""
    if isinstance(mechanism, MeanMechanism):
        special = [-1.0, 1.0, 0.0, -0.0, 5e-324, 1 - 2**-53, -1 + 2**-53, 1 / 3]
        return [rng.choice(special) if rng.random() < 0.2 else rng.uniform(-1, 1) for _ in range(n)]
    if isinstance(mechanism, SetMechanism):
        largest = min(mechanism.largest, 12)
        sizes = [rng.choice((0, largest, rng.randint(0, largest))) for _ in range(n)]
        return [sorted(rng.sample(range(mechanism.items), size)) for size in sizes]
    if isinstance(mechanism, PrefixHashing):
        letters, longest = len(mechanism.alphabet), mechanism.lengths[-1]
        sizes = [rng.choice((1, longest, rng.randint(1, longest))) for _ in range(n)]
        return [[rng.randint(1, letters) for _ in range(size)] for size in sizes]
    if isinstance(mechanism, RAPPOR):
        points = (0, 0x7F, 0x80, 0x7FF, 0x800, 0xFFFF, 0x10FFFF, *range(97, 123))
        return [rng.choices(points, k=rng.choice((0, 1, 12, 200))) for _ in range(n)]
    ends = [0, mechanism.k - 1]  # type: ignore[attr-defined]
    return [rng.choice(ends) if rng.random() < 0.2 else rng.randint(*ends) for _ in range(n)]


def taken(mechanism: Mechanism, value: Any) -> Any:
    """Return a value of `values_of` as Python's mechanism takes it: a word as its integer, the code
    points of a text as the text."""
    if isinstance(mechanism, RAPPOR):
        return "".join(map(chr, value))
    if isinstance(mechanism, PrefixHashing):
        return sum(letter << 5 * place for place, letter in enumerate(value))
    return value


# --- random mechanisms ---------------------------------------------------------------------


def _k(rng: random.Random, largest: int) -> int:
    """Return a number of categories, log-uniform; at times next to a multiple of 8, or an end."""
    k = round(math.exp(rng.uniform(math.log(2), math.log(largest))))
    if rng.random() < 0.2:
        k = 8 * max(1, k // 8) + rng.choice((-1, 0, 1))
    return min(largest, max(2, rng.choice((2, largest)) if rng.random() < 0.02 else k))


def _epsilon(rng: random.Random) -> float:
    return rng.choice((0.5, 1.0, 2.0)) if rng.random() < 0.1 else 10 ** rng.uniform(-2, 1)


def _chain(rng: random.Random) -> tuple[float, float]:
    epsilon = min(_epsilon(rng), 8.0)
    return epsilon, epsilon * rng.uniform(1.05, 3)


def _policy(rng: random.Random, largest: int = 40) -> Policy:
    k, epsilon = max(3, _k(rng, largest)), min(max(_epsilon(rng), 0.05), 6.0)
    if rng.random() < 0.5:
        return Policy.one_sided(k, rng.sample(range(k), rng.randint(1, k - 1)), epsilon)
    classes = [0, 1] + [rng.randint(0, 1) for _ in range(k - 2)]
    return Policy.input_discriminative(classes, [epsilon * rng.uniform(0.2, 1), epsilon])


def _set_selection(rng: random.Random) -> SetSelection:
    items = _k(rng, 3000)
    most, size = rng.randint(1, min(items, 40)), rng.randint(1, rng.choice((1, 3, 80)))
    return SetSelection(items, _epsilon(rng), most, size, rng.randint(1, min(most, size)))


def _prefix_hashing(rng: random.Random) -> PrefixHashing:
    alphabet = rng.sample([*range(97, 123), 0x3B1, 0x10FFFF], rng.randint(1, 26))
    lengths = sorted(rng.randint(1, 12) for _ in range(rng.randint(2, 5)))
    buckets = 1 << rng.randint(1, 8)
    return PrefixHashing(tuple(alphabet), tuple(lengths), _epsilon(rng), buckets=buckets)


def _waves(rng: random.Random) -> Mechanism:
    """Return waves of random patterns, in one dimension or two."""
    sides = rng.choice(((rng.randint(2, 256),), (rng.randint(1, 16), rng.randint(2, 16))))
    k, epsilon = math.prod(sides), min(_epsilon(rng), 8.0)
    patterns = [rng.randrange(1, (1 << k) - 1) for _ in range(rng.randint(2, 9))]
    shares = [1 + rng.randrange(ONE // 10) for _ in patterns]
    widths = [pattern.bit_count() for pattern in patterns]
    words = [p >> shift & (ONE - 1) for p in patterns for shift in range(0, k, 64)]
    integers = {
        "sides": sides,
        "masks": words,
        "chances": (*shares[:-1], ONE - sum(shares[:-1])),
        "include": [include_threshold(width, k - width, epsilon) for width in widths],
    }
    return build("waves", epsilon, integers)


def _policy_unary(rng: random.Random) -> PolicyUnary:
    k = max(3, _k(rng, 300))
    sensitive = rng.sample(range(k), rng.randint(1, k))
    epsilon, symmetric = min(_epsilon(rng), 8.0), rng.random() < 0.5
    return PolicyUnary.utility_optimised(k, sensitive, epsilon, symmetric=symmetric)


def _table(rng: random.Random) -> Mechanism:
    k = _k(rng, 20)
    codes = k + rng.randint(0, 4)
    rows = [[rng.uniform(0.5, 1) + 2 * (x == y) for y in range(codes)] for x in range(k)]
    return ChannelTable.from_rows(8.0, [[p / sum(row) for p in row] for row in rows])


def _projective(rng: random.Random) -> ProjectiveGeometry:
    order = rng.choice(
        (2, 3, 4, 5, 7, 8, 9, 11, 16, 25, 27, 49, 64, 121, 125, 128, 243, 256, 257, 1021, 2039)
    )
    dimension = rng.choice([t for t in (2, 3, 4, 5, 8) if order**t <= 1 << 24])
    points = (order**dimension - 1) // (order - 1)
    return ProjectiveGeometry(_k(rng, min(points, 1 << 20)), _epsilon(rng), order, dimension)


def _sketch(rng: random.Random) -> tuple[int, float, int, int, int]:
    return (
        _k(rng, 1 << 18),
        _epsilon(rng),
        rng.randint(1, 300),
        rng.randint(2, 300),
        rng.randint(1, ONE - 1),
    )


def _she(rng: random.Random) -> SummingHistogram:
    steps = rng.randint(1, 60)
    return SummingHistogram.on_grid(
        _k(rng, 200), min(_epsilon(rng), 4.0), steps, rng.randint(1, 90)
    )


def _loloha(rng: random.Random) -> LOLOHA:
    buckets = None if rng.random() < 0.5 else rng.randint(2, 1 << rng.randint(2, 15))
    return LOLOHA.calibrate(_k(rng, 1 << 20), *_chain(rng), buckets)


def _rappor(rng: random.Random) -> RAPPOR:
    hashes = rng.choice((1, 2, 2, 3, rng.randint(1, 64)))
    bits, cohorts = 2 * hashes + rng.randint(0, 300), rng.randint(1, 1 << rng.randint(0, 15))
    if rng.random() < 0.3:
        q, p, f = sorted((rng.uniform(0.1, 0.9), rng.uniform(0.1, 0.9), rng.uniform(0.1, 0.9)))
        return RAPPOR.published(f, q, p, bits=bits, hashes=hashes, cohorts=cohorts)
    return RAPPOR.calibrate(*_chain(rng), bits=bits, hashes=hashes, cohorts=cohorts)


def _window(rng: random.Random) -> tuple[float, int, int]:
    return _epsilon(rng), rng.randint(1, 2048), rng.randint(1, 3000)


def _hybrid(rng: random.Random) -> HybridMechanism:
    epsilon, grid, window = _window(rng)
    return HybridMechanism(epsilon, grid, window, onebit=rng.randint(1, ONE - 1))


MAKERS: dict[str, Callable[[random.Random], Mechanism]] = {
    "krr": lambda r: KRR(_k(r, 1 << 32), _epsilon(r)),
    "unary": lambda r: (UnaryEncoding, UnaryEncoding.symmetric)[r.random() < 0.3](
        _k(r, 3000), _epsilon(r)
    ),
    "she": _she,
    "hashing": lambda r: LocalHashing(_k(r, 1 << 20), _epsilon(r)),
    "hrr": lambda r: HRR(_k(r, 1 << 24), _epsilon(r)),
    "hadamard": lambda r: HadamardResponse(
        k := _k(r, 1 << 24), _epsilon(r), 1 << r.randrange(k.bit_length())
    ),
    "subset": lambda r: SubsetSelection(
        k := _k(r, 3000), _epsilon(r), r.randint(1, max(1, min(k // 2, 200)))
    ),
    "projective": _projective,
    "cms": lambda r: CountMeanSketch(*_sketch(r)),
    "hcms": lambda r: HadamardCountMeanSketch(*_sketch(r)),
    "ordered": lambda r: OrderedExponential(_k(r, 20), min(_epsilon(r), 6.0)),
    "table": _table,
    "policy_table": lambda r: design(_policy(r, 6)).mechanism,
    "policy_subsets": lambda r: design(_policy(r)).mechanism,
    "policy_unary": _policy_unary,
    "dbitflip": lambda r: DBitFlip(k := _k(r, 1 << 20), _epsilon(r), r.randint(1, min(k, 30))),
    "loloha": _loloha,
    "krr_chain": lambda r: KRRChain.calibrate(_k(r, 1 << 32), *_chain(r)),
    "unary_chain": lambda r: r.choice((UnaryChain.l_sue, UnaryChain.l_osue, UnaryChain.l_oue))(
        _k(r, 1000), *_chain(r)
    ),
    "onebit": lambda r: OneBitMean(_epsilon(r)),
    "piecewise": lambda r: PiecewiseMechanism(*_window(r)),
    "square_wave": lambda r: SquareWave(*_window(r)),
    "hybrid": _hybrid,
    "laplace": lambda r: LaplaceMechanism(min(_epsilon(r), 8.0), r.randint(1, 400)),
    "set_selection": _set_selection,
    "set_bits": lambda r: SetBits(_k(r, 1 << 15), _epsilon(r)),
    "waves": _waves,
    "prefix_hashing": _prefix_hashing,
    "rappor": _rappor,
    "mean_table": lambda r: mean_design.plain(min(_epsilon(r), 8.0), r.randint(1, 12)),
    "policy_mean_table": lambda r: mean_design.under(_policy(r, 8)),
}
"""A random calibrated mechanism, by the name that its plan has (for the two designs: may have)."""


def mechanisms(rng: random.Random) -> Iterator[Mechanism]:
    """Yield random mechanisms of all kinds in turn, half of them with uncalibrated integers."""
    while True:
        for make in MAKERS.values():
            try:
                mechanism = make(rng)
            except InvalidInput:
                continue  # a combination that does not exist, such as a chain too close to its memo
            yield disturbed(mechanism, rng) if rng.random() < 0.5 else mechanism


def disturbed(mechanism: Mechanism, rng: random.Random) -> Mechanism:
    """Return the mechanism with other probabilities, at epsilon 32; itself where it stays none."""
    integers = dict(mechanism.integers)
    for field, values in integers.items():
        if field in PROBABILITIES and rng.random() < 0.8:
            integers[field] = tuple(
                min(ONE - 1, max(1, round(v * rng.uniform(0.2, 1.8)))) for v in values
            )
    try:
        return build(mechanism.name, 32.0, integers)
    except InvalidInput:
        return mechanism


PROBABILITIES = {
    "resample",
    "own",
    "other",
    "flip",
    "include",
    "permanent",
    "instantaneous",
    "onebit",
}


def spoiled(
    mechanism: Mechanism, rng: random.Random
) -> tuple[str, float, dict[str, tuple[int, ...]]]:
    """Return the mechanism as a plan has it, with one integer, or its epsilon, moved."""
    integers, epsilon = dict(mechanism.integers), mechanism.epsilon
    field = rng.choice(sorted(integers))
    values = list(integers[field])
    where = rng.randrange(len(values))
    match rng.randrange(8):
        case 0 | 1:
            values[where] += 1
        case 2 | 3:
            values[where] -= 1
        case 4:
            values[where] = rng.choice((0, 1, 2, ONE // 2, ONE - 1, rng.randrange(ONE)))
        case 5:
            values = rng.choice(([], values[:-1], [*values, 1], [values[where]] * len(values)))
        case 6:
            epsilon = math.nextafter(epsilon, rng.choice((0, 64)))
        case 7:
            values[where] = values[where] * rng.choice((2, 3)) // rng.choice((1, 2, 5))
    integers[field] = tuple(min(ONE - 1, max(0, value)) for value in values)
    return mechanism.name, epsilon, integers
