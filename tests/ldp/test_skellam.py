"""Exact Skellam draws: their law, and the words that a table cannot decide."""

from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from ldp import Coins, InvalidInput
from ldp.two_servers.skellam import _limits, _poisson, skellam


class _Planned(Coins):
    """Coins that give the words they are told, then zeros."""

    def __init__(self, *words: int) -> None:
        self._words = list(words)

    def words(self, n: int) -> NDArray[np.uint64]:
        taken, self._words = self._words[:n], self._words[n:]
        return np.array(taken + [0] * (n - len(taken)), dtype=np.uint64)


def _distribution_function(mean: Fraction, k: int) -> Decimal:
    with localcontext() as context:
        context.prec = 80
        m = Decimal(mean.numerator) / mean.denominator
        term = total = (-m).exp()
        for i in range(1, k + 1):
            term *= m / i
            total += term
        return total


@pytest.mark.parametrize("mean", [Fraction(1, 3), Fraction(5), Fraction(123, 2), Fraction(400)])
def test_the_words_of_each_value_are_the_distribution_function_to_the_last_bit(
    mean: Fraction,
) -> None:
    first, limits = _limits(mean)
    for place in range(0, limits.size, max(1, limits.size // 40)):
        with localcontext() as context:
            context.prec = 80
            exact = int(_distribution_function(mean, first + place) * 2**64)
        assert int(limits[place]) == exact
    assert int(limits[0]) == 0 or first == 0
    assert int(limits[-1]) == 2**64 - 1


def test_a_word_on_a_limit_is_decided_by_the_words_after_it() -> None:
    mean = Fraction(5)
    first, limits = _limits(mean)
    with localcontext() as context:
        context.prec = 80
        digits = int(_distribution_function(mean, 3) * 2**128)
    high, low = divmod(digits, 1 << 64)
    assert int(limits[3 - first]) == high
    assert _poisson(mean, 1, _Planned(high, low - 1)).tolist() == [3]
    assert _poisson(mean, 1, _Planned(high, low + 1)).tolist() == [4]
    # Equal once more: the third word decides.
    with localcontext() as context:
        context.prec = 120
        third = int(_distribution_function(mean, 3) * 2**192) & (1 << 64) - 1
    assert third > 0
    assert _poisson(mean, 1, _Planned(high, low, 0)).tolist() == [3]
    assert _poisson(mean, 1, _Planned(high, low, 2**64 - 1)).tolist() == [4]


def test_the_first_and_the_last_words_are_drawn_in_the_tails() -> None:
    for mean in (Fraction(1, 3), Fraction(400)):
        low = int(_poisson(mean, 1, _Planned(0, 0))[0])
        high = int(_poisson(mean, 1, _Planned(2**64 - 1, 2**64 - 1, 1))[0])
        assert 0 <= low < mean + 1 < high


def test_draws_have_the_mean_and_the_variance() -> None:
    drawn = skellam(Fraction(77, 2), 200_000, Coins())
    assert abs(drawn.mean()) < 4.5 * np.sqrt(38.5 / 200_000)
    assert drawn.var() == pytest.approx(38.5, rel=0.02)


@pytest.mark.parametrize("variance", [Fraction(0), Fraction(-1), Fraction((1 << 27) + 1)])
def test_a_variance_out_of_range_is_refused(variance: Fraction) -> None:
    with pytest.raises(InvalidInput, match="variance must lie"):
        skellam(variance, 3, Coins())
