"""What a mechanism for repeated answers is: a permanent answer, then fresh noise per report.

A device that answers the same question every period must not draw afresh each time, or the
average of its reports is its answer. It draws a permanent answer, the memo, once per distinct
value, keeps it, and reports noisy copies of it. However many copies leave, they are
post-processing of the memo, so all of them together cost what the memo costs
(Erlingsson, Pihur and Korolova, CCS 2014, section 3).
"""

import math
from abc import abstractmethod
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp.coins import Coins
from ldp.errors import InvalidInput
from ldp.exact import log_upper
from ldp.mechanism import Codes, Mechanism, as_array

Devices = NDArray[np.uint8]
"""What devices drew for life before any value: shape (n, device_bytes), one row each."""


class Longitudinal(Mechanism):
    """A mechanism whose reports about one value share a permanent answer.

    A device does, and keeps between reports:
    1. once, before any value: `device = enroll(coins)`, bytes that depend on no value;
    2. `key = memo_key(device, value)`; where it holds no memo of that key, it draws and stores
       `memoize(device, value, coins)` and spends `lifetime_epsilon`;
    3. `code = report(memo, coins)`, which spends nothing more.
    A memo has the form of a code: `encode` and `decode` turn both into bytes, of one size.
    `randomize` does all three at once, for a device that answers but once.

    Guarantee: one report alone is `realised_epsilon`-LDP, which is at most `epsilon`; any
    number of reports over a device's life is `epsilon_for_life(d)`-LDP, d being the number of
    distinct memo keys it used. m reports of one memo may cost MORE than m times `epsilon`
    (k-RR, k = 3, epsilon .1 of 1: two cost .2027), so a ledger charges the memo.
    Whether a change of value can be seen in the reports depends on the noise of a report:
    without any (`DBitFlip`) it is plain to see.
    """

    @abstractmethod
    def _memo_ratio(self) -> Fraction:
        """Return the largest ratio of two values' probabilities of one memo."""

    @property
    def lifetime_epsilon(self) -> float:
        """The epsilon of everything ever reported about one value: that of its memo.

        The smallest double certainly >= the epsilon of the exact integers.
        """
        return log_upper(self._memo_ratio())

    @property
    @abstractmethod
    def memo_limit(self) -> int:
        """The most memo keys a device can come to use."""

    def epsilon_for_life(self, distinct: int) -> float:
        """Return the epsilon, rounded up, of all reports of `distinct` memo keys.

        Keys beyond `memo_limit` do not exist and cost nothing. Raises `InvalidInput` for a
        negative number. Source: sequential composition over memos.
        """
        if distinct < 0:
            raise InvalidInput(f"the number of distinct values must be >= 0, got {distinct}")
        memos = min(distinct, self.memo_limit)
        if memos < 2:
            return memos * self.lifetime_epsilon
        return math.nextafter(memos * self.lifetime_epsilon, math.inf)

    @property
    def device_bytes(self) -> int:
        """The bytes of what a device draws once for life; 0 where it draws nothing."""
        return 0

    def enroll_many(self, n: int, coins: Coins) -> Devices:
        """Return what `n` devices draw for life, shape (n, device_bytes), from no value."""
        return np.empty((n, 0), dtype=np.uint8)

    @abstractmethod
    def memo_key(self, device: bytes, value: Any) -> int:
        """Return which memo `value` uses: values with the same key share one."""

    @abstractmethod
    def memoize_many(self, devices: Devices, values: ArrayLike, coins: Coins) -> Codes:
        """Return one fresh permanent answer per device and value: shape (n, *code_shape)."""

    @abstractmethod
    def report_many(self, memos: Codes, coins: Coins) -> Codes:
        """Return one fresh report per memo: shape (n, *code_shape)."""

    def enroll(self, coins: Coins) -> bytes:
        """Return what a device draws once, before any value, and keeps for life."""
        return self.enroll_many(1, coins).tobytes()

    def memoize(self, device: bytes, value: Any, coins: Coins) -> Any:
        """Return a fresh permanent answer for `value`, in the form of a code.

        Raises `InvalidInput` for a value outside the domain and for bytes that `enroll` cannot
        have given.
        """
        return self.memoize_many(self._devices(device), [value], coins)[0]

    def report(self, memo: Any, coins: Coins) -> Any:
        """Return a fresh report of a memo; raise `InvalidInput` for one that is no code."""
        given = np.asarray(memo)
        codes = given.astype(self.code_dtype)[np.newaxis] if given.dtype.kind in "ui" else None
        if codes is None or given.shape != self.code_shape or not np.array_equal(codes[0], given):
            raise InvalidInput(
                f"{self.name}: a memo is a code, {self.code_dtype} of shape {self.code_shape}, "
                f"got {given.dtype} of shape {given.shape}"
            )
        self._check_codes(codes)
        return self.report_many(codes, coins)[0]

    def randomize(self, value: Any, coins: Coins) -> Any:
        return self.randomize_many([value], coins)[0]

    def randomize_many(self, values: ArrayLike, coins: Coins) -> Codes:
        shape = as_array(self.name, values).shape
        devices = self.enroll_many(shape[0] if shape else 0, coins)
        return self.report_many(self.memoize_many(devices, values, coins), coins)

    def _devices(self, device: bytes) -> Devices:
        if len(device) != self.device_bytes:
            raise InvalidInput(
                f"{self.name}: a device keeps {self.device_bytes} bytes, got {len(device)}"
            )
        return np.frombuffer(device, dtype=np.uint8)[np.newaxis]
