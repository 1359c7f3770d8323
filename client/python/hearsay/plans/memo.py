"""Memos: the permanent answers that a device keeps, and the epsilon that each costs."""

import math
from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256

from ldp import RAPPOR, Coins, InvalidInput
from ldp.core.longitudinal import Longitudinal
from ldp.core.mechanism import Categorical


@dataclass(frozen=True)
class Memoizer:
    """Draw memos and reports of a memoised attribute at one level, and tell their epsilon.

    A value is a category, or for RAPPOR a word. A device keeps, for as long as the attribute is
    asked:
    1. once, before any answer: `device = enroll(coins)`;
    2. for an answer whose `key(device, value)` it has no memo of: it spends `epsilon` and
       keeps `memo = memoize(device, value, coins)`;
    3. in each period it sends `report(memo, coins)`, which spends nothing.
    A `Longitudinal` mechanism draws reports from a memo itself. The code of any other is the
    memo and every report.

    Guarantee, for devices that enroll but once and memoise a key but once: a report by itself is
    a draw from the mechanism's channel; of two lives whose keys repeat at the same times, with d
    distinct keys each, all reports together are d * `epsilon`-LDP. Between other lives, say one
    that changed and one that did not, epsilon grows with the number of reports
    (`Longitudinal.epsilon_of_any_lives`), and is infinite from the second on unless `is_noisy`:
    THAT and WHEN an answer changed, or an earlier one came back, is not protected; and under a cap
    for life, at which old answers are still reported and new ones are not, silence tells that an
    answer is new. Memos also make a device's reports alike, so that they may be linked.
    """

    mechanism: Categorical | RAPPOR

    @property
    def epsilon(self) -> float:
        """The epsilon of a memo, spent once for its key: it covers all reports of an answer that
        never changes. The smallest double certainly >= that of the exact integers."""
        if isinstance(self.mechanism, Longitudinal):
            return self.mechanism.memo_epsilon
        return self.mechanism.realised_epsilon

    @property
    def is_noisy(self) -> bool:
        """Whether a report is its memo with fresh noise, rather than the memo itself."""
        mechanism = self.mechanism
        return isinstance(mechanism, Longitudinal) and math.isfinite(
            mechanism.instantaneous_epsilon
        )

    @property
    def identity(self) -> bytes:
        """The key of the mechanism, 32 bytes: a memo is good for this very mechanism only."""
        integers = sorted(self.mechanism.integers.items())
        return sha256(repr((self.mechanism.name, integers)).encode()).digest()

    def check(self, memo: float) -> None:
        """Raise `InvalidInput` unless epsilon and noise fit an attribute declared with `memo`."""
        if Fraction(self.epsilon) > Fraction(memo) * Fraction(self.mechanism.epsilon):
            raise InvalidInput(
                f"{self.mechanism.name}: a memo has epsilon {self.epsilon:.6g}, more than "
                f"{memo:g} times the {self.mechanism.epsilon:g} of a report"
            )
        if memo > 1 and not self.is_noisy:
            raise InvalidInput(
                f"memo = {memo:g} promises fresh noise in every report, "
                f"and {self.mechanism.name} repeats its memo"
            )

    def enroll(self, coins: Coins) -> bytes:
        """Return the bytes that a device draws once, before any answer, and keeps; often none."""
        return self.mechanism.enroll(coins) if isinstance(self.mechanism, Longitudinal) else b""

    def key(self, device: bytes, value: int | str) -> int:
        """Return the key of a value's memo, an integer >= 0; equal keys share a memo.

        Raises `InvalidInput` for a value outside the domain and for bytes that `enroll` cannot
        have given.
        """
        self._check(device, value)
        if isinstance(self.mechanism, Longitudinal):
            return self.mechanism.memo_key(device, value)  # type: ignore[arg-type]
        return int(value)

    def memoize(self, device: bytes, value: int | str, coins: Coins) -> bytes:
        """Return a fresh memo, as the bytes of a code; raise `InvalidInput` as `key` does."""
        self._check(device, value)
        if isinstance(self.mechanism, Longitudinal):
            memo = self.mechanism.memoize(device, value, coins)  # type: ignore[arg-type]
        else:
            memo = self.mechanism.randomize(value, coins)
        return self.mechanism.encode_one(memo)

    def report(self, memo: bytes, coins: Coins) -> bytes:
        """Return the bytes of a fresh report; raise `InvalidInput` for bytes that are no memo."""
        (code,) = self.mechanism.decode(memo, 1)
        if not isinstance(self.mechanism, Longitudinal):
            return memo
        return self.mechanism.encode_one(self.mechanism.report(code, coins))

    def _check(self, device: bytes, value: int | str) -> None:
        mechanism = self.mechanism
        size = mechanism.device_bytes if isinstance(mechanism, Longitudinal) else 0
        if len(device) != size:
            raise InvalidInput(f"{mechanism.name}: a device keeps {size} bytes, got {len(device)}")
        if isinstance(mechanism, Categorical) and value not in range(mechanism.k):
            raise InvalidInput(f"{mechanism.name}: no category of {mechanism.k}")
