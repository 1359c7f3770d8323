"""The interface of mechanisms for repeated answers: a permanent answer, fresh noise per report.

A device that answers the same question every period must not draw afresh each time, or the
average of its reports is its answer. It draws a permanent answer, the memo, once per distinct
value, keeps it, and reports noisy copies of it. However many copies leave, they are
post-processing of the memo, so all of them together cost as much as the memo
(Erlingsson, Pihur and Korolova, CCS 2014, section 3). That is so as long as the value stays. Two
values have two memos, drawn apart, one value has one, and enough copies tell which: WHEN a value
changed is not hidden but blurred, and comes to light with the number of reports.
"""

import math
from abc import abstractmethod
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp.core.coins import Coins
from ldp.core.exact import float_above, log_upper
from ldp.core.mechanism import Codes, Mechanism, as_array
from ldp.errors import InvalidInput

Devices = NDArray[np.uint8]
"""Bytes that devices draw once at enrollment: shape (n, device_bytes), one row each."""


class Longitudinal(Mechanism):
    """A mechanism whose reports about one value share a permanent answer.

    A device does, and keeps between reports:
    1. once, before any value: `device = enroll(coins)`, bytes that depend on no value;
    2. `key = memo_key(device, value)`; where it holds no memo of that key, it draws and stores
       `memoize(device, value, coins)`;
    3. `code = report(memo, coins)`.
    A memo has the form of a code: `encode` and `decode` turn both into bytes, of one size.
    `randomize` does all three at once, for a device that answers but once.

    Guarantee, for each outcome of `enroll`, which is drawn before any value:
    - one report alone is `realised_epsilon`-LDP, which is at most `epsilon`;
    - all reports of two lives whose memo keys repeat at the same times (two lives without any
      change, say) differ by at most `epsilon_of_same_changes(keys)`, however many they are;
    - all of any two lives of T reports differ by at most `epsilon_of_any_lives(T)`, which grows
      with T: NO number of memos bounds the cost of a change. The reports 0 x 12 against 0 x 6,
      1 x 6 of a k-RR chain of k = 2, epsilon 1 and memo 2 come to 8.19, though two memos are
      4; those of a mechanism without noise per report (`DBitFlip`) to infinity at T = 2.
    m reports may cost MORE than m times `epsilon` even of one memo (k-RR, k = 3, epsilon .1
    of 1: two cost .2027). The second bound is published for whole lives without its condition
    (Arcolezi et al., EDBT 2023); tests/ldp/test_longitudinal.py refutes that by enumeration.
    """

    guarantee = "repeated"

    @abstractmethod
    def _memo_ratio(self) -> Fraction:
        """Return the largest ratio of two values' probabilities of one memo."""

    @property
    def memo_epsilon(self) -> float:
        """The epsilon of a memo, and so of all reports of a value that never changes.

        The smallest double certainly >= the epsilon of the exact integers.
        """
        return log_upper(self._memo_ratio())

    @property
    @abstractmethod
    def instantaneous_epsilon(self) -> float:
        """The epsilon, rounded up, of a report given its memo, between any two memos.

        Above `realised_epsilon`, and infinite where a report is its memo.
        """

    @property
    @abstractmethod
    def memo_limit(self) -> int:
        """The largest number of memo keys that one device can use."""

    def epsilon_of_same_changes(self, keys: int) -> float:
        """Return the epsilon, rounded up, between two lives of one change pattern.

        It holds, for any number of reports, ONLY between lives of which two reports share a
        memo key in one where they do in the other; each has `keys` distinct ones. Then the
        reports of a key are post-processing of its one memo, in both lives, and memos are
        independent: `memo_epsilon` each. The pattern is of `memo_key` values, which depend on
        the device where it hashes or samples: values that change alike may have keys that do
        not. Keys beyond `memo_limit` do not exist. Raises `InvalidInput` for a negative number.
        """
        if keys < 0:
            raise InvalidInput(f"the number of memo keys must be >= 0, got {keys}")
        return float_above(min(keys, self.memo_limit) * Fraction(self.memo_epsilon))

    def epsilon_of_any_lives(self, reports: int) -> float:
        """Return the epsilon, rounded up, between any two lives of `reports` reports.

        The less of two bounds. Given any other reports, a report is a mixture over memos of
        the second round's outputs, so it adds at most i = `instantaneous_epsilon` to
        theirs; the first of all adds `realised_epsilon`: realised_epsilon + (reports - 1) i.
        And of a table of the reports by their key in either life, d x d with
        d = min(memo_limit, reports), one of the d cyclic diagonals holds at least reports / d.
        There the lives have one change pattern, and the others add i each:
        d memo_epsilon + (reports - ceil(reports / d)) i.
        Lives of a k-RR chain may come to half of reports times i, and more. Raises
        `InvalidInput` for a negative number.
        """
        if reports < 0:
            raise InvalidInput(f"the number of reports must be >= 0, got {reports}")
        if reports == 0:
            return 0.0
        if reports == 1:
            return self.realised_epsilon
        if math.isinf(self.instantaneous_epsilon):
            return math.inf
        each = Fraction(self.instantaneous_epsilon)
        keys = min(self.memo_limit, reports)
        in_turn = Fraction(self.realised_epsilon) + (reports - 1) * each
        matched = keys * Fraction(self.memo_epsilon) + (reports - -(-reports // keys)) * each
        return float_above(min(in_turn, matched))

    @property
    def device_bytes(self) -> int:
        """The number of bytes that a device draws at enrollment; 0 where it draws none."""
        return 0

    def enroll_many(self, n: int, coins: Coins) -> Devices:
        """Return enrollment bytes for `n` devices, shape (n, device_bytes), from no value."""
        return np.empty((n, 0), dtype=np.uint8)

    @abstractmethod
    def memo_key(self, device: bytes, value: Any) -> int:
        """Return the key of the memo that `value` uses; values with the same key share a memo."""

    @abstractmethod
    def memoize_many(self, devices: Devices, values: ArrayLike, coins: Coins) -> Codes:
        """Return one fresh permanent answer per device and value: shape (n, *code_shape)."""

    @abstractmethod
    def report_many(self, memos: Codes, coins: Coins) -> Codes:
        """Return one fresh report per memo: shape (n, *code_shape)."""

    def enroll(self, coins: Coins) -> bytes:
        """Return the bytes that a device draws once, before any value, and keeps for life."""
        return self.enroll_many(1, coins).tobytes()

    def memoize(self, device: bytes, value: Any, coins: Coins) -> Any:
        """Return a fresh permanent answer for `value`, in the form of a code.

        Raises `InvalidInput` for a value outside the domain and for bytes that `enroll` cannot
        have given.
        """
        return self.memoize_many(self._devices(device), [value], coins)[0]

    def report(self, memo: Any, coins: Coins) -> Any:
        """Return a fresh report of a memo; raise `InvalidInput` for a memo that is no code."""
        given = np.asarray(memo)
        codes = given.astype(self.code_dtype)[np.newaxis] if given.dtype.kind in "ui" else None
        if codes is None or given.shape != self.code_shape or not np.array_equal(codes[0], given):
            raise InvalidInput(
                f"{self.name}: a memo is a code, {self.code_dtype} of shape {self.code_shape}, "
                f"got {given.dtype} of shape {given.shape}"
            )
        self._check_codes(codes)
        return self._report(codes[0], coins)

    def _report(self, memo: Any, coins: Coins) -> Any:
        """Return a report of a memo that is a code, in `code_dtype`."""
        return self.report_many(memo[np.newaxis], coins)[0]

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
