"""Coins: exact, whoever serves the bytes, and never the same twice."""

import os
import sys
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from forked import bytes_of_a_forked_child
from ldp import Coins, InvalidInput
from ldp.core import coins as coins_module
from ldp.core.exact import ONE
from ldp.testing import SeededCoins

SMALL, LARGE = 4, 1 << 12  # words: from the system, and from a keystream


class ScriptedCoins(Coins):
    """Serve the given bytes, one item a request."""

    def __init__(self, script: Iterable[bytes]) -> None:
        self._script = iter(script)

    def _bytes(self, count: int) -> bytes:
        served = next(self._script)
        assert len(served) == count
        return served


@pytest.mark.parametrize("n", [SMALL, LARGE])
def test_forked_children_repeat_neither_their_parent_nor_each_other(n: int) -> None:
    coins = Coins()
    drawn = list(map(int, coins.words(n)))
    for _ in range(3):
        told = bytes_of_a_forked_child(lambda: coins.words(n).tobytes())
        drawn += np.frombuffer(told, dtype=np.uint64).tolist()
    drawn += list(map(int, coins.words(n)))
    assert len(drawn) == 5 * n == len(set(drawn))


def test_threads_that_share_coins_do_not_repeat() -> None:
    coins = Coins()
    with ThreadPoolExecutor(8) as pool:
        drawn = np.concatenate(list(pool.map(coins.words, [SMALL, LARGE] * 40)))
    assert np.unique(drawn).size == drawn.size == 40 * (SMALL + LARGE)


def test_every_bulk_request_has_a_key_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    keys, drawn, given = list[bytes](), list[bytes](), os.urandom

    def keystream(key: bytes, out: memoryview) -> None:
        keys.append(key)
        out[:] = bytes(len(out))

    def urandom(count: int) -> bytes:
        drawn.append(given(count))
        return drawn[-1]

    monkeypatch.setattr(coins_module, "_load_keystream", lambda: keystream)
    monkeypatch.setattr(os, "urandom", urandom)
    coins = Coins()
    coins.words(LARGE)
    coins.words(LARGE)
    assert keys == drawn  # all of a key is fresh from the system, and nothing else is asked for
    assert [len(key) for key in keys] == [32, 32]
    small = coins.words(SMALL)
    assert [small.tobytes()] == drawn[2:]  # not from that keystream


@pytest.mark.parametrize("count", [1, 16, 100, 1 << 12, 1_000_003])
def test_the_keystream_is_aes_in_counter_mode(count: int) -> None:
    ciphers = pytest.importorskip("cryptography.hazmat.primitives.ciphers")
    keystream = coins_module._load_keystream()
    assert keystream is not None
    key = bytes(range(32))
    counters = b"".join(i.to_bytes(16, "big") for i in range(count // 16 + 1))
    oracle = ciphers.Cipher(ciphers.algorithms.AES(key), ciphers.modes.ECB()).encryptor()
    before = os.urandom(count)  # whatever memory holds is encrypted
    drawn = bytearray(before)
    keystream(key, memoryview(drawn))
    stream = oracle.update(counters)[:count]
    assert drawn == bytes(a ^ b for a, b in zip(before, stream, strict=True))


def test_without_cryptography_the_system_serves_every_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers", None)
    load = coins_module._load_keystream.__wrapped__
    assert load() is None
    monkeypatch.setattr(coins_module, "_load_keystream", load)
    served = []
    monkeypatch.setattr(os, "urandom", lambda count: served.append(count) or bytes(count))
    assert Coins().words(LARGE).tolist() == [0] * LARGE
    assert served == [8 * LARGE]


@pytest.mark.parametrize("n", [SMALL, LARGE])
def test_the_real_coins_are_fair(n: int) -> None:
    bits = np.unpackbits(Coins().words(n).view(np.uint8))
    assert abs(bits.mean() - 0.5) < 6 * 0.5 / np.sqrt(bits.size)


ROUNDS = coins_module._ROUNDS


def all_patterns(bits: int) -> np.ndarray:
    return np.arange(1 << bits)[:, None] >> np.arange(bits - 1, -1, -1) & 1  # first bit first


@pytest.mark.parametrize("top", [0, 1, 68, 1 << ROUNDS - 1, (1 << ROUNDS) - 1])
@pytest.mark.parametrize("rest", [1, (1 << 64 - ROUNDS) - 1])
def test_packed_coins_are_decided_as_their_numbers_compare(top: int, rest: int) -> None:
    # Coins whose numbers begin with each of the patterns: exactly `top` of them are below the
    # threshold, the one that ties is decided by the number's other bits, and no other.
    patterns = all_patterns(ROUNDS)
    agrees = np.packbits(patterns[top] == patterns, axis=0, bitorder="little").T.tobytes()
    for tie, expected in ((0, top + 1), (ONE - 1, top), (rest << ROUNDS, top)):
        script = [agrees, tie.to_bytes(8, "little")]
        heads = np.zeros(len(patterns) // 64, dtype=np.uint64)
        ScriptedCoins(script)._toss(top << 64 - ROUNDS | rest, heads)
        below = np.unpackbits(heads.view(np.uint8), bitorder="little")
        assert np.flatnonzero(below).tolist() == list(range(expected))


def test_packed_coins_of_a_short_threshold_need_no_tie_break() -> None:
    size = 1 << ROUNDS
    for bits in range(1, ROUNDS + 1):
        patterns = all_patterns(ROUNDS) >= 1
        agrees = np.packbits(patterns[:, -bits:], axis=0, bitorder="little").T
        threshold = ((1 << bits) - 1) << 64 - bits
        heads = np.zeros(size // 64, dtype=np.uint64)
        ScriptedCoins([agrees.tobytes()])._toss(threshold, heads)
        assert sum(int(word).bit_count() for word in heads) == size - (size >> bits)
        rows = [row[:32].tobytes() for row in agrees]
        few = ScriptedCoins(rows).bernoulli_bytes(threshold, 32)
        assert np.array_equal(few, heads.view(np.uint8)[:32])


@pytest.mark.parametrize("top", [0, 1, 68, 128, 255])
def test_few_coins_are_decided_as_their_numbers_compare(top: int) -> None:
    # As above, with 256 coins; the one that ties with the first octet is alone, and loses at
    # its next bit.
    patterns = all_patterns(8)
    agrees = np.packbits(patterns[top] == patterns, axis=0, bitorder="little").T
    script = [*(row.tobytes() for row in agrees), bytes(32)]
    for next_bit in (0, 1):
        threshold = top << 56 | next_bit << 55 | 1
        heads = ScriptedCoins(script).bernoulli_bytes(threshold, 32)
        below = np.unpackbits(heads, bitorder="little")
        assert np.flatnonzero(below).tolist() == list(range(top + next_bit))


@pytest.mark.parametrize("threshold", [0, 1, ONE // 2, ONE - 1, ONE, 0x4E1A_55CF_0000_0001])
@pytest.mark.parametrize("n", [0, 1, 63, 65, 300_001])
def test_coins_in_bulk_come_up_as_often_as_the_threshold_says(
    threshold: int, n: int, coins: SeededCoins
) -> None:
    heads = coins.bernoulli_many(threshold, n)
    assert heads.shape == (n,)
    assert heads.dtype == np.bool_
    p = threshold / ONE
    assert abs(int(heads.sum()) - n * p) <= 5 * np.sqrt(n * p * (1 - p)) + (0 < p < 1)


@pytest.mark.parametrize("bound", [1, 3, 100, 128, 256, 257, 1000, 1024, 4099, 65536])
def test_bounded_integers_take_every_accepted_draw_equally_often(bound: int) -> None:
    bits = 8 if 256 % bound <= 16 else 16
    every_draw = np.arange(1 << bits).astype(f"<u{bits // 8}").tobytes()
    last = every_draw[-bits // 8 :]  # its product's low half is the largest: never rejected
    left = (1 << bits) % bound
    coins = ScriptedCoins([every_draw, last * left])
    counts = np.bincount(coins.below_many(bound, 1 << bits), minlength=bound)
    counts[bound - 1] -= left
    assert (counts == (1 << bits) // bound).all()


@pytest.mark.parametrize("bound", [10, 5000, 1 << 20, 3_000_000_000, 1 << 32])
def test_bounded_integers_are_uniform(bound: int, coins: SeededCoins) -> None:
    n = 300_000
    drawn = coins.below_many(bound, n)
    assert int(drawn.max()) < bound
    cells = np.bincount((drawn * np.uint64(10) // np.uint64(bound)).astype(int), minlength=10)
    assert ((cells - n / 10) ** 2 / (n / 10)).sum() < 35  # 9 degrees of freedom, p = 6e-5


class Stream(Coins):
    """Serve the bytes of one stream, however many are asked for at once, and count them."""

    def __init__(self, stream: bytes) -> None:
        self.stream, self.used = stream, 0

    def _bytes(self, count: int) -> bytes:
        self.used += count
        assert self.used <= len(self.stream)
        return self.stream[self.used - count : self.used]


def tossed(threshold: int, n: int, stream: bytes) -> tuple[bytes, int]:
    """Toss bit by bit as docs/wire-mechanisms.md says; return the coins and the bytes used."""
    heads, still_open, used, bits = [0] * 8 * n, set(range(8 * n)), 0, f"{threshold:064b}"
    if threshold == ONE:
        return b"\xff" * n, 0
    while still_open and "1" in bits:
        for v in sorted(still_open):
            if not stream[used + v // 8] >> v % 8 & 1:
                heads[v] = int(bits[0])
                still_open.remove(v)
        used, bits = used + n, bits[1:]
    return np.packbits(heads, bitorder="little").tobytes(), used


@pytest.mark.parametrize("n", [1, 8, 255, 256, 257, 1000])
@pytest.mark.parametrize("threshold", [0, 1, ONE // 2, 3 << 61, 0x4E1A_55CF_0000_0001, ONE])
def test_the_coins_of_one_report_take_the_bytes_of_one_stream(threshold: int, n: int) -> None:
    random = np.random.default_rng(n).bytes(64 * n)
    for stream in (random, bytes(64 * n), b"\xff" * 64 * n):
        coins = Stream(stream)
        drawn = coins.toss(threshold, n).tobytes()
        assert (drawn, coins.used) == tossed(threshold, n, stream)


def floyd(count: int, size: int, stream: bytes) -> tuple[list[int], int]:
    """Draw a subset as docs/wire-mechanisms.md says; return it and the bytes used."""
    words = [int.from_bytes(stream[i : i + 8], "little") for i in range(0, len(stream), 8)]
    chosen: list[int] = []
    waiting = iter(words)
    used = 0
    for last in range(count - size, count):
        word = ONE
        while word >= ONE - ONE % (last + 1):
            word, used = next(waiting), used + 8
        index = word % (last + 1)
        chosen.append(last if index in chosen else index)
    return sorted(chosen), used


@pytest.mark.parametrize(
    ("count", "size"),
    [(1, 1), (5, 0), (5, 5), (7, 3), (8, 8), (9, 9), (40, 13), (40, 40), (1000, 3), (1000, 12)],
)
def test_a_subset_is_floyds_from_the_same_words(count: int, size: int) -> None:
    random = np.random.default_rng(count).bytes(8 * size + 64)
    # Words at the top, which some bounds reject, at the beginning and later.
    rejected = b"\xff" * 24 + random
    repeated = bytes(8 * size // 2 + 8 - 8 * size // 2 % 8) + rejected
    for stream in (random, rejected, repeated):
        coins = Stream(stream)
        drawn = coins.distinct(count, size).tolist()
        assert (drawn, coins.used) == floyd(count, size, stream)


def test_every_subset_comes_of_equally_many_draws() -> None:
    # All words that can be drawn modulo 4, 5 and 6: 120 draws, six for each of the 20 subsets.
    draws = [b"".join(i.to_bytes(8, "little") for i in d) for d in np.ndindex(4, 5, 6)]
    subsets = [tuple(Stream(draw).distinct(6, 3).tolist()) for draw in draws]
    assert set(Counter(subsets).values()) == {6}
    assert len(set(subsets)) == 20


def test_a_subset_larger_than_its_set_is_refused(coins: SeededCoins) -> None:
    with pytest.raises(InvalidInput, match=r"size must lie in 0\.\.3, got 4"):
        coins.distinct(3, 4)


def test_a_bound_or_threshold_out_of_range_is_refused(coins: SeededCoins) -> None:
    for bound in (0, -1, (1 << 32) + 1):
        with pytest.raises(InvalidInput, match=r"bound must lie in 1\.\.2\*\*32, got"):
            coins.below_many(bound, 1)
    for threshold in (-1, ONE + 1):
        with pytest.raises(InvalidInput, match=r"threshold must lie in 0\.\.2\*\*64, got"):
            coins.bernoulli_bytes(threshold, 1)
        with pytest.raises(InvalidInput, match=r"threshold must lie in 0\.\.2\*\*64, got"):
            coins.bernoulli(threshold)


def test_seeded_coins_are_the_same_however_many_are_asked_for_at_once() -> None:
    apart, together = SeededCoins(3), SeededCoins(3)
    sizes = [1, 2, 600, 511, 1, 5000, 7]
    drawn = np.concatenate([apart.words(n) for n in sizes])
    assert np.array_equal(drawn, together.words(sum(sizes)))
    assert not np.array_equal(drawn, SeededCoins(4).words(sum(sizes)))
