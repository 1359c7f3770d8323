"""Ciphers in compiled code, against OpenSSL's and the standards' own numbers."""

import os

import llvmlite.binding
import numba
import numpy as np
import pytest

from dpsgd.noise.keystream import (
    STEP,
    Cipher,
    blocks_at_once,
    compile_aes,
    compile_chacha,
    load_cipher,
)
from ldp import InvalidInput

AT_ONCE = blocks_at_once()
WIDTHS = [
    pytest.param(blocks, marks=pytest.mark.skipif(blocks > AT_ONCE, reason="no such instructions"))
    for blocks in (1, 2)
]
STARTS = [0, 32, 224, 256, 65_504, 1 << 32, (1 << 34) - 32, 3 << 40, (1 << 63) - 4096]


@pytest.fixture(scope="module", params=WIDTHS)
def aes(request: pytest.FixtureRequest) -> Cipher:
    return compile_aes(request.param)


def key_words(key: bytes) -> np.ndarray:
    return np.frombuffer(bytearray(key), np.uint64)


def test_a_key_is_expanded_as_in_the_standard(aes: Cipher) -> None:
    # FIPS 197, appendix A.3.
    key = bytes.fromhex("603deb1015ca71be2b73aef0857d7781 1f352c073b6108d72d9810a30914dff4")
    schedule = aes.expand(key_words(key)).tobytes()
    assert len(schedule) == 8 * aes.size == 240
    assert schedule[:32] == key
    assert schedule[32:40].hex() == "9ba354118e6925af"
    assert schedule[-16:].hex() == "fe4890d1e6188d0b046df344706c631e"


def test_a_block_is_that_of_the_standard(aes: Cipher) -> None:
    # A counter of zero under a key of zeros, which is a known answer of NIST's validation suite.
    words = np.empty(STEP, np.uint64)
    aes.keystream(words, aes.expand(np.zeros(4, np.uint64)), 0)
    assert words[:2].tobytes().hex() == "dc95c078a2408989ad48a21492842087"


@pytest.mark.parametrize("first", STARTS)
@pytest.mark.parametrize("pairs", [32, 64, 1600])
def test_the_keystream_of_aes_is_that_of_openssl(aes: Cipher, first: int, pairs: int) -> None:
    ciphers = pytest.importorskip("cryptography.hazmat.primitives.ciphers")
    key = os.urandom(32)
    mode = ciphers.modes.CTR(first.to_bytes(16, "big"))
    expected = ciphers.Cipher(ciphers.algorithms.AES(key), mode).encryptor()
    words = np.full(2 * pairs + 2, 7, np.uint64)
    aes.keystream(words[1:-1], aes.expand(key_words(key)), first)
    assert words[0] == words[-1] == 7
    assert words[1:-1].tobytes() == expected.update(bytes(16 * pairs))


@pytest.fixture(scope="module")
def chacha() -> Cipher:
    return compile_chacha()


def chacha_bytes(cipher: Cipher, key: bytes, first: int, pairs: int) -> bytes:
    """What ChaCha20 in compiled code yields, in the cipher's own order."""
    schedule, words = cipher.expand(key_words(key)), np.full(2 * pairs + 2, 7, np.uint64)
    assert schedule.size == cipher.size
    cipher.keystream(words[1:-1], schedule, first)
    assert words[0] == words[-1] == 7
    rows = words[1:-1].view(np.uint32).reshape(-1, 16, 8)  # 8 blocks of 16 words, side by side
    return rows.transpose(0, 2, 1).tobytes()


@pytest.mark.parametrize("first", [first for first in STARTS if first % (1 << 34) < (1 << 34) - 32])
@pytest.mark.parametrize("pairs", [32, 64, 1600])
def test_the_keystream_of_chacha_is_that_of_openssl(chacha: Cipher, first: int, pairs: int) -> None:
    ciphers = pytest.importorskip("cryptography.hazmat.primitives.ciphers")
    key = os.urandom(32)
    counter = (first // 4).to_bytes(8, "little") + bytes(8)
    expected = ciphers.Cipher(ciphers.algorithms.ChaCha20(key, counter), mode=None).encryptor()
    assert chacha_bytes(chacha, key, first, pairs) == expected.update(bytes(16 * pairs))


def test_a_block_of_chacha_is_that_of_its_rfc(chacha: Cipher) -> None:
    # RFC 8439, appendix A.1, test vectors 1 and 2: a key of zeros, counters 0 and 1.
    drawn = chacha_bytes(chacha, bytes(32), 0, 32)
    assert drawn[:16].hex() == "76b8e0ada0f13d90405d6ae55386bd28"
    assert drawn[64:80].hex() == "9f07e7be5551387a98ba977c732d080d"


@pytest.mark.parametrize(
    ("machine", "features", "blocks"),
    [
        ("x86_64", {"aes": True, "vaes": True, "avx2": True}, 2),
        ("AMD64", {"aes": True, "vaes": False, "avx2": True}, 1),
        ("x86_64", {"aes": True, "vaes": True, "avx2": False}, 1),
        ("x86_64", {"aes": False, "vaes": True, "avx2": True}, 0),
        ("x86_64", {}, 0),
        ("arm64", {"aes": True}, 0),
    ],
)
def test_only_instructions_that_are_there_are_used(
    machine: str, features: dict[str, bool], blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr(llvmlite.binding, "get_host_cpu_features", lambda: features)
    for setting, value in PLAIN.items():
        monkeypatch.setattr(numba.config, setting, value)
    assert blocks_at_once() == blocks
    assert (load_cipher.__wrapped__().size == 4) == (blocks == 0)


PLAIN = {"CPU_NAME": None, "CPU_FEATURES": None, "ENABLE_AVX": 1}
OTHERS = [
    ("CPU_NAME", "generic"),
    ("CPU_FEATURES", "+sse2"),
    ("CPU_FEATURES", ""),
    ("ENABLE_AVX", 0),
]


@pytest.mark.parametrize(("setting", "value"), OTHERS)
def test_code_for_another_processor_is_left_alone(
    setting: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numba.config, setting, value)
    assert blocks_at_once() == 0


def test_a_processor_that_llvm_does_not_know_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unknown() -> dict[str, bool]:
        raise RuntimeError

    monkeypatch.setattr(llvmlite.binding, "get_host_cpu_features", unknown)
    assert blocks_at_once() == 0


def test_without_compiled_code_there_is_no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
    with pytest.raises(InvalidInput, match="NUMBA_DISABLE_JIT"):
        load_cipher.__wrapped__()
