"""Where a server's evidence comes from: the interface of each platform, or a test's key.

Of these only the test attester was ever run: there was no enclave to run the others in.
"""

import asyncio
import ctypes
import fcntl
import logging
import os
import secrets
import time
from pathlib import Path
from typing import Literal, Protocol

from hearsay.attestation import Evidence, TestAttester
from ldp.errors import needs

_log = logging.getLogger("hearsay.server")

Kind = Literal["none", "test", "tdx", "sgx", "nitro"]

_PCCS = "https://api.trustedservices.intel.com"
"""Intel's service of collateral."""

_KEEP_COLLATERAL = 24 * 3600.0
"""Seconds for which collateral is used again: it is valid for weeks."""


class Attester(Protocol):
    """Make evidence that carries 64 bytes. Blocks, and raises `OSError` where the platform does."""

    def evidence(self, bound: bytes) -> Evidence: ...


class ForTests:
    """Evidence of kind "test", which proves nothing. Its `root` is in the log."""

    def __init__(self) -> None:
        self._attester = TestAttester()
        self.root = self._attester.root
        _log.warning("test attestation proves nothing: its root is %s", self.root.hex())

    def evidence(self, bound: bytes) -> Evidence:
        return self._attester.evidence(bound, time.time())


class _Quoting:
    """Quotes of Intel's, with the collateral that goes with them."""

    kind: str

    def __init__(self) -> None:
        with needs("attestation", "attestation"):
            import dcap_qvl

        self._dcap = dcap_qvl
        self._collateral: tuple[float, bytes] = -_KEEP_COLLATERAL, b""

    def evidence(self, bound: bytes) -> Evidence:
        quote = self.quote(bound)
        fetched, collateral = self._collateral
        if time.monotonic() - fetched >= _KEEP_COLLATERAL:
            found = asyncio.run(self._dcap.get_collateral(_PCCS, quote))
            collateral = found.to_json().encode()
            self._collateral = time.monotonic(), collateral
        return Evidence(self.kind, quote, collateral)

    def quote(self, bound: bytes) -> bytes:
        raise NotImplementedError


class Tdx(_Quoting):
    """Quotes of a TDX guest, by Linux's configfs-tsm (Documentation/ABI/testing/configfs-tsm)."""

    kind = "tdx"

    def __init__(self, reports: Path = Path("/sys/kernel/config/tsm/report")) -> None:
        super().__init__()
        self._reports = reports

    def quote(self, bound: bytes) -> bytes:
        entry = self._reports / f"hearsay-{secrets.token_hex(8)}"
        entry.mkdir()  # makes the files of a report, too
        try:
            (entry / "inblob").write_bytes(bound)
            return (entry / "outblob").read_bytes()
        finally:
            entry.rmdir()


class Sgx(_Quoting):
    """Quotes of an SGX enclave under Gramine, by its files in /dev/attestation."""

    kind = "sgx"

    def __init__(self, files: Path = Path("/dev/attestation")) -> None:
        super().__init__()
        self._files = files

    def quote(self, bound: bytes) -> bytes:
        (self._files / "user_report_data").write_bytes(bound)
        return (self._files / "quote").read_bytes()


class Nitro:
    """Documents of an AWS Nitro enclave, by its security module /dev/nsm."""

    _CALL = 0xC0200A00
    """_IOWR(0x0A, 0, struct nsm_message), of Linux's linux/nsm.h: two struct iovec."""
    _MOST = 1 << 14

    def __init__(self, device: Path = Path("/dev/nsm")) -> None:
        with needs("attestation", "attestation"):
            import cbor2

        self._cbor, self._device = cbor2, device

    def evidence(self, bound: bytes) -> Evidence:
        asked = {"Attestation": {"user_data": bound, "nonce": None, "public_key": None}}
        request = ctypes.create_string_buffer(self._cbor.dumps(asked))
        response = ctypes.create_string_buffer(self._MOST)
        sizes = len(request) - 1, self._MOST
        message = (ctypes.c_uint64 * 4)(
            ctypes.addressof(request), sizes[0], ctypes.addressof(response), sizes[1]
        )
        file = os.open(self._device, os.O_RDWR)
        try:
            fcntl.ioctl(file, self._CALL, message)
        finally:
            os.close(file)
        answer = self._cbor.loads(response.raw[: message[3]])
        return Evidence("nitro", answer["Attestation"]["document"])


def attester(kind: Kind) -> Attester | None:
    """Return what makes evidence of a kind; None for "none". Raises `MissingExtra`."""
    kinds = {"test": ForTests, "tdx": Tdx, "sgx": Sgx, "nitro": Nitro}
    return None if kind == "none" else kinds[kind]()
