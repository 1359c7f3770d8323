"""The mechanisms written once more, from docs/wire-mechanisms.md alone, slowly and plainly.

Nothing of ldp is used: where this and ldp draw the same codes from the same bytes, the page says
enough for a client in another language.
"""

import hashlib
import struct
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

ONE = 2**64
Integers = Mapping[str, Sequence[int]]


class Stream:
    """The bytes of a seed's stream, or literal ones."""

    def __init__(self, seed: bytes, *, literal: bool = False) -> None:
        self.used = 0
        self._bytes = self._literal(seed) if literal else self._blocks(seed)

    @staticmethod
    def _literal(data: bytes) -> Iterator[int]:
        yield from data

    @staticmethod
    def _blocks(seed: bytes) -> Iterator[int]:
        n = 0
        while True:
            yield from hashlib.sha256(seed + n.to_bytes(8, "little")).digest()
            n += 1

    def take(self, count: int) -> bytes:
        self.used += count
        return bytes(next(self._bytes) for _ in range(count))

    def word(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def coin(self, t: int) -> bool:
        return self.word() < t

    def uniform(self, m: int) -> int:
        words = 1
        while m > ONE**words:
            words += 1
        while True:
            number = sum(self.word() * ONE**place for place in range(words))
            if number < ONE**words - ONE**words % m:
                return number % m

    def pick(self, weights: Sequence[int]) -> int:
        u = self.word()
        return next(y for y in range(len(weights)) if u < sum(weights[: y + 1]))

    def toss(self, t: int, n: int) -> bytes:
        heads = bytes(n)
        if t == ONE:
            return b"\xff" * n
        still_open = b"\xff" * n
        while t > 0 and any(still_open):
            drawn = self.take(n)
            still = bytes(a & b for a, b in zip(still_open, drawn, strict=True))
            if t >= 2**63:
                decided = (a ^ b for a, b in zip(still_open, still, strict=True))
                heads = bytes(a | b for a, b in zip(heads, decided, strict=True))
            still_open = still
            t = 2 * t % ONE
        return heads

    def distinct(self, n: int, s: int) -> list[int]:
        added: list[int] = []
        for last in range(n - s, n):
            i = self.uniform(last + 1)
            added.append(last if i in added else i)
        return sorted(added)

    def point(self, x: float, grid: int) -> int:
        r = (Fraction(x) + 1) / 2 * grid
        i = r.numerator // r.denominator
        return i + int(self.coin(int((r - i) * ONE)))

    def place(self, x: float, grid: int) -> int:
        q = ((Fraction(x) + 1) / 2 * grid * 2**32 + Fraction(1, 2)) // 1
        return q // 2**32 + int(self.coin(q % 2**32 * 2**32))


def integer_width(count: int) -> int:
    return next(width for width in (1, 2, 4, 8) if count <= 2 ** (8 * width))


def little(number: int, width: int) -> bytes:
    return number.to_bytes(width, "little")


def ones(x: int) -> int:
    return bin(x).count("1")


def bits_of(data: bytes, count: int) -> list[int]:
    return [data[v // 8] >> v % 8 & 1 for v in range(count)]


def packed(bits: Sequence[int]) -> bytes:
    out = bytearray((len(bits) + 7) // 8)
    for v, bit in enumerate(bits):
        out[v // 8] |= int(bit) << v % 8
    return bytes(out)


def power_of_two(least: int) -> int:
    power = 1
    while power < least:
        power *= 2
    return power


# --- one code -----------------------------------------------------------------------------------


def krr(k: int, resample: int, v: int, s: Stream) -> int:
    return s.uniform(k) if s.coin(resample) else v


def unary(k: int, own: int, other: int, v: int, s: Stream) -> list[int]:
    bits = bits_of(s.toss(other, (k + 7) // 8), k)
    bits[v] = int(s.coin(own))
    return bits


def second_round(bits: Sequence[int], own: int, other: int, s: Stream) -> list[int]:
    n, width = len(bits), (len(bits) + 7) // 8
    z = bits_of(s.toss(other, width), n)
    if own + other == ONE:
        return [b ^ c for b, c in zip(bits, z, strict=True)]
    o = bits_of(s.toss(own, width), n)
    return [c if b else d for b, c, d in zip(bits, o, z, strict=True)]


def combination(sizes: Sequence[int], given: Sequence[int | None], s: Stream) -> int:
    found = 0
    for k, v in zip(sizes, given, strict=True):
        found = found * k + (s.uniform(k) if v is None else v)
    return found


def bucket(a: int, b: int, v: int, prime: int, buckets: int) -> int:
    return (a * v + b) % prime * buckets // prime


def hrr(k: int, flip: int, v: int, s: Stream) -> int:
    row = 1 + s.uniform(power_of_two(k) - 1)
    bit = ones(row & v) % 2
    return 2 * (row - 1) + (bit ^ int(s.coin(flip)))


def hadamard(k: int, blocks: int, include: int, v: int, s: Stream) -> int:
    width = power_of_two(-(-k // blocks) + 1)
    h, block, c = width // 2, v % blocks, 1 + v // blocks
    own_set = [y for y in range(width) if ones(y & c) % 2 == 0] if width <= 64 else None
    inside = s.coin(include)
    d = s.uniform(h if inside else blocks * width - h)
    if not inside and d >= h:
        o, y = divmod(d - h, width)
        return (o + (o >= block)) * width + y
    low = c & -c
    y = d // low * 2 * low + d % low
    if (ones(y & c) % 2 == 0) != inside:
        y += low
    if own_set is not None:
        assert (y in own_set) == inside
    return block * width + y


def subset(k: int, size: int, include: int, v: int, s: Stream) -> bytes:
    own = s.coin(include)
    others = s.distinct(k - 1, size - 1 if own else size)
    chosen = {i if i < v else i + 1 for i in others} | ({v} if own else set())
    width = 1 if k <= 256 else 2
    if (k + 7) // 8 <= size * width:
        return packed([int(x in chosen) for x in range(k)])
    return b"".join(little(x, width) for x in sorted(chosen))


def binomial(n: int, k: int) -> int:
    if not 0 <= k <= n:
        return 0
    found = 1
    for i in range(k):
        found = found * (n - i) // (i + 1)
    return found


def set_selection(i: Integers, items: Sequence[int], s: Stream) -> bytes:
    (d,), (most,), (size,) = i["items"], i["most"], i["size"]
    (meet,), (include,) = i["meet"], i["include"]
    everything = range(d + most)
    own = [*items, *range(d, d + most - len(items))]
    others = sorted(set(everything) - set(own))
    numbers = range(meet, most + 1) if s.coin(include) else range(meet)
    weights = {j: binomial(most, j) * binomial(d, size - j) for j in numbers}
    u = s.uniform(sum(weights.values()))
    j = next(j for j in numbers if u < sum(weights[x] for x in numbers if x <= j))
    chosen = [own[place] for place in s.distinct(most, j)]
    chosen += [others[place] for place in s.distinct(d, size - j)]
    if size == 1:
        return little(chosen[0], integer_width(d + most))
    width = 1 if d + most <= 256 else 2
    if (d + most + 7) // 8 <= size * width:
        return packed([int(x in chosen) for x in everything])
    return b"".join(little(x, width) for x in sorted(chosen))


def set_bits(i: Integers, items: Sequence[int], s: Stream) -> bytes:
    (d,), (flip,) = i["items"], i["flip"]
    asked = s.uniform(d)
    return little(2 * asked + (int(asked in items) ^ int(s.coin(flip))), integer_width(2 * d))


class Field:
    """The field of q elements: a prime, or p^m as polynomials modulo x^m - r(x)."""

    def __init__(self, q: int) -> None:
        self.q = q
        p = next(p for p in range(2, q + 1) if q % p == 0)
        self.p, self.m = p, 1
        while p**self.m < q:
            self.m += 1
        if self.m > 1:
            self.r = next(r for r in range(1, q) if self._is_primitive(r))

    def _is_primitive(self, r: int) -> bool:
        x, power, order = self.p, self.p, 1
        while power != 1:
            power = self._times_x(power, r)
            order += 1
            if order >= self.q or power == 0:
                return False
        return order == self.q - 1 and x > 1

    def _times_x(self, a: int, r: int) -> int:
        top, shifted = a // self.p ** (self.m - 1), a * self.p % self.q
        for _ in range(top):
            shifted = self._plus(shifted, r)
        return shifted

    def _plus(self, a: int, b: int) -> int:
        total, place = 0, 1
        for _ in range(self.m):
            total += (a // place + b // place) % self.p * place
            place *= self.p
        return total

    def add(self, a: int, b: int) -> int:
        return (a + b) % self.q if self.m == 1 else self._plus(a, b)

    def multiply(self, a: int, b: int) -> int:
        if self.m == 1:
            return a * b % self.q
        product = 0
        for place in range(self.m - 1, -1, -1):
            product = self._times_x(product, self.r)
            for _ in range(b // self.p**place % self.p):
                product = self._plus(product, a)
        return product

    def negative(self, a: int) -> int:
        if self.m == 1:
            return -a % self.q
        return sum(-(a // self.p**i) % self.p * self.p**i for i in range(self.m))

    def inverse(self, a: int) -> int:
        power, exponent, square = 1, self.q - 2, a
        while exponent:
            if exponent % 2:
                power = self.multiply(power, square)
            square, exponent = self.multiply(square, square), exponent // 2
        return power


def projective(k: int, q: int, t: int, include: int, v: int, s: Stream) -> int:
    field = Field(q)

    def vector(number: int) -> list[int]:
        f = 0
        while number >= (q ** (f + 1) - 1) // (q - 1):
            f += 1
        rest = number - (q**f - 1) // (q - 1)
        return [0] * (t - 1 - f) + [1] + [rest // q**i % q for i in range(f - 1, -1, -1)]

    x = vector(v)
    leading = x.index(1)
    on = s.coin(include)
    y = [0] * t
    while not any(y):
        drawn = s.uniform(q**t)
        y = [drawn // q**i % q for i in range(t - 1, -1, -1)]
        rest = 0
        for j in range(t):
            if j != leading:
                rest = field.add(rest, field.multiply(x[j], y[j]))
        y[leading] = field.add(0 if on else 1, field.negative(rest))
    first = next(j for j in range(t) if y[j])
    scale = field.inverse(y[first])
    f = t - 1 - first
    number = (q**f - 1) // (q - 1)
    for digit in y[first + 1 :]:
        f -= 1
        number += field.multiply(scale, digit) * q**f
    return number


def sketched(i: Integers, v: int, s: Stream) -> tuple[int, int]:
    (prime,), (buckets,), (seed,) = i["prime"], i["buckets"], i["seed"]
    function = s.uniform(i["hashes"][0])
    digest = hashlib.sha256(struct.pack("<QQ", seed, function)).digest()
    a, b, c = (word % prime for word in struct.unpack("<QQQ", digest[:24]))
    return function, (a * v * v + b * v + c) % prime * buckets // prime


def classes_of(i: Integers) -> tuple[list[int], int]:
    (k,), policy = i["k"], i["policy"]
    return list(policy[1 : 1 + k]), policy[0]


def policy_subsets(i: Integers, v: int, s: Stream) -> bytes:
    classes, count = classes_of(i)
    types = len(i["sizes"]) // count
    own = classes[v]
    event = s.pick(i["weights"][2 * types * own : 2 * types * (own + 1)])
    t, inside = event % types, event < types
    chosen = {v} if inside else set()
    for a in range(count):
        others = [x for x, b in enumerate(classes) if b == a and x != v]
        wanted = i["sizes"][count * t + a] - (1 if a == own and inside else 0)
        if wanted:
            chosen |= {others[place] for place in s.distinct(len(others), wanted)}
    return bytes([t]) + packed([int(x in chosen) for x in range(len(classes))])


def policy_unary(i: Integers, v: int, s: Stream) -> bytes:
    classes, count = classes_of(i)
    bits = [0] * len(classes)
    for a in range(count):
        tossed = bits_of(s.toss(i["other"][a], (len(classes) + 7) // 8), len(classes))
        bits = [tossed[x] if classes[x] == a else bit for x, bit in enumerate(bits)]
    bits[v] = int(s.coin(i["own"][classes[v]]))
    return packed(bits)


def window(i: Integers, point: int, s: Stream) -> int:
    (grid,), (size,), (resample,) = i["grid"], i["window"], i["resample"]
    return s.uniform(grid + size) if s.coin(resample) else point + s.uniform(size)


def laplace(i: Integers, x: float, s: Stream) -> int:
    (grid,), tails = i["grid"], i["tails"]
    point = s.point(x, grid)
    # At least j steps, and at least j + 1: exactly j. The ends hold all noise beyond them.
    exactly = [tails[j] - tails[j + 1] for j in range(grid)]
    side = [*exactly[1:], tails[grid]]
    noise = s.pick([*reversed(side), exactly[0], *side]) - grid
    return min(grid, max(0, point + noise))


def table(i: Integers, v: int, s: Stream) -> bytes:
    (k,), weights = i["k"], i["weights"]
    m = len(weights) // k
    return little(s.pick(weights[m * v : m * (v + 1)]), integer_width(m))


def waves(i: Integers, x: int, s: Stream) -> bytes:
    rows, columns = i["sides"] if len(i["sides"]) == 2 else (1, *i["sides"])
    k, patterns = rows * columns, len(i["chances"])
    j = s.pick(i["chances"])
    words = len(i["masks"]) // patterns
    mine = i["masks"][words * j : words * (j + 1)]
    inside = [v for v in range(k) if mine[v // 64] >> v % 64 & 1]
    among = inside if s.coin(i["include"][j]) else sorted(set(range(k)) - set(inside))
    u = among[s.uniform(len(among))]
    row, column = (x // columns - u // columns) % rows, (x - u) % columns
    return little(k * j + columns * row + column, integer_width(k * patterns))


def prefix_hashing(i: Integers, word: Sequence[int], s: Stream) -> bytes:
    group, seed = s.pick(i["chances"]), s.uniform(1 << 32)
    x = sum(letter * 32**j for j, letter in enumerate(word)) % 32 ** i["lengths"][group]
    bucket = 0
    for row in range(1, power_of_two(i["buckets"][0]).bit_length()):
        z = (seed + row * 0x9E3779B97F4A7C15) % ONE
        z = (z ^ z // 2**30) * 0xBF58476D1CE4E5B9 % ONE
        z = (z ^ z // 2**27) * 0x94D049BB133111EB % ONE
        bucket |= ones((z ^ z // 2**31) & x) % 2 << row - 1
    y = krr(*_one(i, "buckets", "resample"), bucket, s)
    return little(group, 1) + little(seed, 4) + little(y, 1)


def code(name: str, i: Integers, value: Any, s: Stream) -> bytes:
    """Return one code of a mechanism, by its integers, from a stream."""
    return CODES[name](i, value, s)


def _one(i: Integers, *names: str) -> list[int]:
    return [i[name][0] for name in names]


def _krr(i: Integers, v: int, s: Stream) -> bytes:
    k, resample = _one(i, "k", "resample")
    return little(krr(k, resample, v, s), integer_width(k))


def _unary(i: Integers, v: int, s: Stream) -> bytes:
    return packed(unary(*_one(i, "k", "own", "other"), v, s))


def _she(i: Integers, v: int, s: Stream) -> bytes:
    weights = i["weights"]
    levels = [s.pick(weights) for _ in range(i["k"][0])]
    levels[v] = len(weights) - 1 - levels[v]
    return bytes(levels)


def _hashing(i: Integers, v: int, s: Stream) -> bytes:
    buckets, prime, resample = _one(i, "buckets", "prime", "resample")
    a, b = s.uniform(prime), s.uniform(prime)
    y = krr(buckets, resample, bucket(a, b, v, prime, buckets), s)
    width = integer_width(max(prime**2 * buckets, 2**32))
    return little((a * prime + b) * buckets + y, width)


def _hrr(i: Integers, v: int, s: Stream) -> bytes:
    k, flip = _one(i, "k", "flip")
    return little(hrr(k, flip, v, s), integer_width(2 * (power_of_two(k) - 1)))


def _hadamard(i: Integers, v: int, s: Stream) -> bytes:
    k, blocks, include = _one(i, "k", "blocks", "include")
    points = blocks * power_of_two(-(-k // blocks) + 1)
    return little(hadamard(k, blocks, include, v, s), integer_width(points))


def _projective(i: Integers, v: int, s: Stream) -> bytes:
    k, q, t, include = _one(i, "k", "order", "dimension", "include")
    return little(projective(k, q, t, include, v, s), integer_width((q**t - 1) // (q - 1)))


def _cms(i: Integers, v: int, s: Stream) -> bytes:
    function, h = sketched(i, v, s)
    flip = i["flip"][0]
    return little(function, 4) + packed(unary(i["buckets"][0], ONE - flip, flip, h, s))


def _hcms(i: Integers, v: int, s: Stream) -> bytes:
    function, h = sketched(i, v, s)
    hashes, buckets, flip = _one(i, "hashes", "buckets", "flip")
    codes = 2 * (power_of_two(buckets) - 1)
    return little(codes * function + hrr(buckets, flip, h, s), integer_width(hashes * codes))


def _onebit(i: Integers, x: float, s: Stream) -> bytes:
    point = s.point(x, 1)
    return bytes([point ^ int(s.coin(i["flip"][0]))])


def _window(i: Integers, x: float, s: Stream) -> bytes:
    grid, size = _one(i, "grid", "window")
    return little(window(i, s.point(x, grid), s), integer_width(grid + size))


def _hybrid(i: Integers, x: float, s: Stream) -> bytes:
    grid, size, flip, onebit = _one(i, "grid", "window", "flip", "onebit")
    point = s.point(x, grid)
    if s.coin(onebit):
        drawn = int(s.uniform(grid) < point) ^ int(s.coin(flip))
    else:
        drawn = 2 + window(i, point, s)
    return little(drawn, integer_width(2 + grid + size))


def _laplace(i: Integers, x: float, s: Stream) -> bytes:
    return little(laplace(i, x, s), integer_width(i["grid"][0] + 1))


def _mean_table(i: Integers, x: float, s: Stream) -> bytes:
    m = len(i["places"])
    point = s.place(x, i["grid"][0])
    return bytes([s.pick(i["weights"][m * point : m * (point + 1)])])


def _lasting(i: Integers, v: int, s: Stream, name: str) -> bytes:
    device = enroll(name, i, s)
    return report(name, i, memoize(name, i, device, v, s), s)


CODES: Mapping[str, Callable[..., bytes]] = {
    "krr": _krr,
    "unary": _unary,
    "she": _she,
    "hashing": _hashing,
    "hrr": _hrr,
    "hadamard": _hadamard,
    "subset": lambda i, v, s: subset(*_one(i, "k", "size", "include"), v, s),
    "projective": _projective,
    "cms": _cms,
    "hcms": _hcms,
    "ordered": table,
    "table": table,
    "policy_table": table,
    "policy_subsets": policy_subsets,
    "policy_unary": policy_unary,
    "dbitflip": lambda i, v, s: _lasting(i, v, s, "dbitflip"),
    "krr_chain": lambda i, v, s: _lasting(i, v, s, "krr_chain"),
    "unary_chain": lambda i, v, s: _lasting(i, v, s, "unary_chain"),
    "loloha": lambda i, v, s: _lasting(i, v, s, "loloha"),
    "onebit": _onebit,
    "piecewise": _window,
    "square_wave": _window,
    "hybrid": _hybrid,
    "laplace": _laplace,
    "mean_table": _mean_table,
    "policy_mean_table": _mean_table,
    "set_selection": set_selection,
    "set_bits": set_bits,
    "waves": waves,
    "prefix_hashing": prefix_hashing,
    "rappor": lambda i, v, s: _lasting(i, v, s, "rappor"),
}


# --- memos --------------------------------------------------------------------------------------


def _loloha_width(i: Integers) -> int:
    buckets, prime = _one(i, "buckets", "prime")
    return integer_width(max(prime**2 * buckets, 2**32))


def _split(device: bytes, width: int) -> list[int]:
    return [
        int.from_bytes(device[at : at + width], "little") for at in range(0, len(device), width)
    ]


def enroll(name: str, i: Integers, s: Stream) -> bytes:
    """Return the bytes that a device draws for life."""
    if name == "dbitflip":
        k, d = _one(i, "k", "d")
        return b"".join(little(c, integer_width(2 * k)) for c in s.distinct(k, d))
    if name == "loloha":
        prime = i["prime"][0]
        a, b = s.uniform(prime), s.uniform(prime)
        return little(a * prime + b, _loloha_width(i))
    if name == "rappor":
        return little(s.uniform(i["cohorts"][0]), 2)
    return b""


def _filter(i: Integers, device: bytes, v: Sequence[int]) -> list[int]:
    """Return the bits of a word, given by its code points, in a device's cohort."""
    hashes, count = _one(i, "hashes", "bits")
    text = "".join(map(chr, v)).encode()
    found: list[int] = []
    block = 0
    while len(found) < hashes:
        salt = device + bytes(6) + little(block, 8)
        digest = hashlib.blake2b(text, digest_size=64, salt=salt, person=b"hearsay").digest()
        for w in _split(digest, 8):
            if len(found) < hashes and w * count // ONE not in found:
                found.append(w * count // ONE)
        block += 1
    return [int(bit in found) for bit in range(count)]


def _device_bucket(i: Integers, device: bytes, v: int) -> int:
    buckets, prime = _one(i, "buckets", "prime")
    a, b = divmod(int.from_bytes(device, "little"), prime)
    return bucket(a, b, v, prime, buckets)


def key(name: str, i: Integers, device: bytes, v: Any) -> int:
    """Return the key of a value's memo."""
    if name == "rappor":
        return sum(bit << place for place, bit in enumerate(_filter(i, device, v)))
    if name == "loloha":
        return _device_bucket(i, device, v)
    if name == "dbitflip":
        k = i["k"][0]
        return v if v in _split(device, integer_width(2 * k)) else k
    return v


def memoize(name: str, i: Integers, device: bytes, v: Any, s: Stream) -> bytes:
    """Return a memo, as the bytes of a code."""
    if name == "rappor":
        own, other = i["permanent"]
        return device + packed(second_round(_filter(i, device, v), own, other, s))
    if name == "krr_chain":
        k, permanent = _one(i, "k", "permanent")
        return little(krr(k, permanent, v, s), integer_width(k))
    if name == "unary_chain":
        own, other = i["permanent"]
        return packed(unary(i["k"][0], own, other, v, s))
    if name == "loloha":
        buckets, permanent = _one(i, "buckets", "permanent")
        y = krr(buckets, permanent, _device_bucket(i, device, v), s)
        return little(int.from_bytes(device, "little") * buckets + y, _loloha_width(i))
    if name == "dbitflip":
        k, d, flip = _one(i, "k", "d", "flip")
        width = integer_width(2 * k)
        flips = bits_of(s.toss(flip, (d + 7) // 8), d)
        asked = _split(device, width)
        answers = (2 * c + (int(c == v) ^ flips[j]) for j, c in enumerate(asked))
        return b"".join(little(answer, width) for answer in answers)
    return code(name, i, v, s)


def report(name: str, i: Integers, memo: bytes, s: Stream) -> bytes:
    """Return a report of a memo, as the bytes of a code."""
    if name == "rappor":
        own, other = i["instantaneous"]
        return memo[:2] + packed(second_round(bits_of(memo[2:], i["bits"][0]), own, other, s))
    if name == "krr_chain":
        k, instantaneous = _one(i, "k", "instantaneous")
        return little(krr(k, instantaneous, int.from_bytes(memo, "little"), s), len(memo))
    if name == "unary_chain":
        own, other = i["instantaneous"]
        return packed(second_round(bits_of(memo, i["k"][0]), own, other, s))
    if name == "loloha":
        buckets, instantaneous = _one(i, "buckets", "instantaneous")
        function, y = divmod(int.from_bytes(memo, "little"), buckets)
        return little(function * buckets + krr(buckets, instantaneous, y, s), len(memo))
    return memo


# --- the exact check ----------------------------------------------------------------------------

_BITS = 700
"""Bits after the point of sums that are then rounded to 60 digits, some 200 bits."""


def sixty(x: Fraction, how: Callable[[Fraction], int]) -> Fraction:
    """Round a positive fraction to 60 significant digits."""
    unit = Fraction(10) ** (len(str(x.numerator)) - len(str(x.denominator)) - 62)
    while x / unit >= 10**60:
        unit *= 10
    return how(x / unit) * unit


def down(x: Fraction) -> int:
    return x.numerator // x.denominator


def up(x: Fraction) -> int:
    return -(-x.numerator // x.denominator)


def nearest(low: Fraction, high: Fraction) -> Fraction:
    """Round to 60 digits a number between two bounds; both must round alike."""
    half = Fraction(1, 2)
    rounded = {sixty(x, lambda each: down(each + half)) for x in (low, high)}
    assert len(rounded) == 1, "more bits are needed"
    return rounded.pop()


def neighbour(x: Fraction, by: int) -> Fraction:
    """Return the next larger (1) or smaller (-1) number of 60 digits."""
    unit = Fraction(10) ** -70
    while x / unit >= 10**60:
        unit *= 10
    if by < 0 and x / unit == 10**59:
        unit /= 10
    return x + by * unit


def exponential_bound(x: Fraction) -> Fraction:
    """Return L: what a ratio is compared with."""
    x = sixty(x, down)
    halvings = 0
    while x > 1:
        x, halvings = x / 2, halvings + 1
    one = 1 << _BITS
    step = down(x * one)
    total = term = one
    n = 0
    while term:
        n += 1
        term = term * step // (one * n)
        total += term
    low, high = Fraction(total, one), Fraction(total + 2 * n + 2, one)
    for _ in range(halvings):
        low, high = (Fraction(round_((each * each) * one), one) for each, round_ in
                     ((low, down), (high, up)))  # fmt: skip
    return neighbour(nearest(low, high), -1)


def logarithm(ratio: Fraction) -> float:
    """Return the epsilon that is charged for a ratio."""
    if ratio == 1:
        return 0.0
    r = sixty(ratio, up)
    halvings = 0
    while r > 2:
        r, halvings = r / 2, halvings + 1
    low, high = (a + halvings * b for a, b in zip(_log(r), _log(Fraction(2)), strict=True))
    found = neighbour(nearest(low, high), 1)
    near = found.numerator / found.denominator
    while Fraction(near) < found:
        (bits,) = struct.unpack("<q", struct.pack("<d", near))
        (near,) = struct.unpack("<d", struct.pack("<q", bits + 1))
    return near


def _log(r: Fraction) -> tuple[Fraction, Fraction]:
    """Return bounds of ln(r), 1 < r <= 2: ln(r) = 2 (z + z^3/3 + z^5/5 + ...), z = (r-1)/(r+1)."""
    one = 1 << _BITS
    z = down((r - 1) / (r + 1) * one)
    square, power, total, n = z * z // one, z, 0, 1
    while power:
        total += power // n
        power, n = power * square // one, n + 2
    return Fraction(2 * total, one), Fraction(2 * total + 8 * n, one)


# --- numbers ------------------------------------------------------------------------------------


def place(low: float, high: float, step: float, clamp: bool, x: float) -> float | None:
    """Return where a number lies in [-1, 1]; None where it is outside the domain."""
    if x != x or x in (float("inf"), float("-inf")) or (not clamp and not low <= x <= high):
        return None
    if not step:
        s = (x - low) / (high - low)
        return max(-1.0, min(1.0, 2.0 * s - 1.0))
    n = round((high - low) / step)
    x = max(low, min(high, x))
    i = min(n, int((x - low) / (high - low) * n + 0.000001))
    return 2.0 * i / n - 1.0


def protected(
    low: float, high: float, step: float, grid: int, regions: Sequence[tuple[float, float]]
) -> set[int]:
    """Return the grid points that numbers of the regions may be reported from."""
    found: set[int] = set()
    for ends in regions:
        places = [place(low, high, step, True, end) for end in ends]
        first, last = (
            ((Fraction(x or 0.0) + 1) / 2 * grid * 2**32 + Fraction(1, 2)) // 1 for x in places
        )
        found |= set(range(first // 2**32, last // 2**32 + (1 if last % 2**32 else 0) + 1))
    return found


def lengths(
    low: float,
    high: float,
    step: float,
    grid: int,
    resolution: Sequence[tuple[float, float]],
    cap: float,
    epsilon: float,
) -> list[int]:
    """Return the length of each cell of the grid, in units of 2^-58."""
    h = (Fraction(high) - Fraction(low)) / grid
    found = []
    for i in range(grid):
        left, right = Fraction(low) + i * h, Fraction(low) + (i + 1) * h
        begin, shares = Fraction(low), []
        for upto, within in resolution:
            shared = min(right, Fraction(upto)) - max(left, begin)
            if shared > 0:
                shares.append((shared, Fraction(within)))
            begin = Fraction(upto)
        rate = Fraction(epsilon) / Fraction(cap or 1.0)
        if step and round((high - low) / step) == grid:
            length = sum(rate * shared / within for shared, within in shares)
        else:
            x = rate * h / max(within for _, within in shares)
            length = 2 * x / (2 + x)
        found.append(length * 2**58 // 1)
    return found


def bin_of(
    low: float, high: float, bins: int | Sequence[float], clamp: bool, x: float
) -> int | None:
    """Return the bin of a number, of so many or between edges; None outside the domain."""
    if x != x or x in (float("inf"), float("-inf")) or (not clamp and not low <= x <= high):
        return None
    x = max(low, min(high, x))
    if not isinstance(bins, int):
        return max(i for i, edge in enumerate(bins[:-1]) if edge <= x)
    return min(bins - 1, int((x - low) / (high - low) * bins + 0.000001))


# --- sets and ratings ---------------------------------------------------------------------------


def some(items: Sequence[Any], most: int, s: Stream) -> list[Any]:
    if len(items) <= most:
        return list(items)
    return [items[place] for place in s.distinct(len(items), most)]


def set_answer(most: int, clamp: bool, places: Sequence[int], s: Stream) -> list[int] | None:
    """Return the items that a mechanism takes; None where the set is outside the domain."""
    items = sorted(set(places))
    return None if len(items) > most and not clamp else some(items, most, s)


def any_set(values: int, most: int, s: Stream) -> list[int]:
    return s.distinct(values, s.uniform(most + 1))


def word(alphabet: str, longest: int, answer: str) -> str | None:
    answer = unicodedata.normalize("NFC", answer)
    while answer.startswith(" ") or answer.endswith(" "):
        answer = answer.removeprefix(" ").removesuffix(" ")
    found = ""
    for c in answer:
        mapped = [each for each in (c, c.lower(), c.upper()) if len(each) == 1 and each in alphabet]
        if not mapped:
            return None
        found += mapped[0]
    return found if 1 <= len(found) <= longest else None


def value(values: Sequence[str], answer: str | float) -> int | None:
    """Return the place of the value that an answer is; None where it is none."""
    if isinstance(answer, str):
        spelled = unicodedata.normalize("NFC", answer)
    elif not abs(answer) < 2**63 or 0 < abs(answer) < 1e-6:
        return None
    else:
        spelled = str(int(answer)) if answer == int(answer) else f"{Decimal(repr(answer)):f}"
    return values.index(spelled) if spelled in values else None


def any_word(alphabet: str, longest: int, s: Stream) -> str:
    return "".join(alphabet[s.uniform(len(alphabet))] for _ in range(longest))


def shares(
    low: float, high: float, most: int, clamp: bool, rated: Sequence[tuple[int, float]]
) -> list[tuple[int, int]] | None:
    """Return each rated key with its rating's share of the scale; None outside the domain."""
    if any(not low <= rating <= high for _, rating in rated) or (len(rated) > most and not clamp):
        return None
    scale = Fraction(high) - Fraction(low)
    return sorted((key, down((Fraction(x) - Fraction(low)) / scale * ONE)) for key, x in rated)


def signs(kept: Sequence[tuple[int, int]], s: Stream) -> list[int]:
    return [2 * key + (0 if s.coin(t) else 1) for key, t in kept]


def any_ratings(keys: int, most: int, s: Stream) -> list[int]:
    chosen = s.distinct(keys, s.uniform(most + 1))
    return signs([(key, s.uniform(ONE)) for key in chosen], s)
