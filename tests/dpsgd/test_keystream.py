"""AES in compiled code, against OpenSSL's and the standard's own numbers."""

import os

import llvmlite.binding
import numba
import numpy as np
import pytest

from dpsgd.keystream import STEP, Aes, _blocks_at_once, _compile_aes, load_aes

AT_ONCE = _blocks_at_once()
WIDTHS = [
    pytest.param(blocks, marks=pytest.mark.skipif(blocks > AT_ONCE, reason="no such instructions"))
    for blocks in (1, 2)
]


@pytest.fixture(scope="module", params=WIDTHS)
def aes(request: pytest.FixtureRequest) -> Aes:
    return _compile_aes(request.param)


def key_words(key: bytes) -> np.ndarray:
    return np.frombuffer(bytearray(key), np.uint64)


def test_a_key_is_expanded_as_in_the_standard(aes: Aes) -> None:
    # FIPS 197, appendix A.3.
    key = bytes.fromhex("603deb1015ca71be2b73aef0857d7781 1f352c073b6108d72d9810a30914dff4")
    schedule = aes.expand(key_words(key)).tobytes()
    assert len(schedule) == 240
    assert schedule[:32] == key
    assert schedule[32:40].hex() == "9ba354118e6925af"
    assert schedule[-16:].hex() == "fe4890d1e6188d0b046df344706c631e"


def test_a_block_is_that_of_the_standard(aes: Aes) -> None:
    # A counter of zero under a key of zeros, which is a known answer of NIST's validation suite.
    words = np.empty(STEP, np.uint64)
    aes.keystream(words, aes.expand(np.zeros(4, np.uint64)), 0)
    assert words[:2].tobytes().hex() == "dc95c078a2408989ad48a21492842087"


@pytest.mark.parametrize("first", [0, 16, 240, 256, 65_520, 1 << 32, 3 << 40, (1 << 63) - 4096])
@pytest.mark.parametrize("blocks", [16, 32, 1600])
def test_the_keystream_is_that_of_openssl(aes: Aes, first: int, blocks: int) -> None:
    ciphers = pytest.importorskip("cryptography.hazmat.primitives.ciphers")
    key = os.urandom(32)
    mode = ciphers.modes.CTR(first.to_bytes(16, "big"))
    expected = ciphers.Cipher(ciphers.algorithms.AES(key), mode).encryptor()
    words = np.full(2 * blocks + 2, 7, np.uint64)
    aes.keystream(words[1:-1], aes.expand(key_words(key)), first)
    assert words[0] == words[-1] == 7
    assert words[1:-1].tobytes() == expected.update(bytes(16 * blocks))


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
    assert _blocks_at_once() == blocks
    assert (load_aes.__wrapped__() is None) == (blocks == 0)


PLAIN = {"CPU_NAME": None, "CPU_FEATURES": None, "ENABLE_AVX": 1, "DISABLE_JIT": 0}
OTHERS = [("CPU_NAME", "generic"), ("CPU_FEATURES", "+sse2"), ("CPU_FEATURES", "")]


@pytest.mark.parametrize(("setting", "value"), [*OTHERS, ("ENABLE_AVX", 0), ("DISABLE_JIT", 1)])
def test_code_for_another_processor_is_left_alone(
    setting: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numba.config, setting, value)
    assert _blocks_at_once() == 0


def test_a_processor_that_llvm_does_not_know_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unknown() -> dict[str, bool]:
        raise RuntimeError

    monkeypatch.setattr(llvmlite.binding, "get_host_cpu_features", unknown)
    assert _blocks_at_once() == 0
