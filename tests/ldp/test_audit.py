"""Audits: sound mechanisms pass, broken ones are caught, and the confidence holds."""

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

from ldp import (
    KRR,
    LOLOHA,
    RAPPOR,
    Channel,
    ChannelTable,
    Coins,
    CountMeanSketch,
    DBitFlip,
    HadamardCountMeanSketch,
    HadamardResponse,
    InvalidInput,
    LocalHashing,
    Mechanism,
    OneBitMean,
    OrderedExponential,
    UnaryEncoding,
)
from ldp.assurance.audit import audit, one_by_one
from ldp.core.mechanism import Codes
from ldp.testing import SeededCoins

TABLE = (3 << 62, 1 << 62, 3 << 61, 5 << 61)  # (3/4, 1/4) and (3/8, 5/8)


class NeverFlipsTrueBit(UnaryEncoding):
    """The defect of a published RAPPOR client: a true bit is reported as it is."""

    def randomize_many(self, values: ArrayLike, coins: Coins) -> Codes:
        codes = super().randomize_many(values, coins)
        array = np.asarray(values)
        codes[np.arange(array.size), array >> 3] |= np.left_shift(1, array & 7).astype(np.uint8)
        return codes


class DeclaresTooMuch(KRR):
    """A mechanism whose channel is not the one its integers promise."""

    def channel(self) -> Channel:
        return KRR(self.k, 2 * self.epsilon).channel()


class CarelessWithOne(KRR):
    """Sound in bulk, but a single answer keeps its value too often."""

    def randomize(self, value: int, coins: Coins) -> int:
        return value if coins.bernoulli(1 << 63) else super().randomize(value, coins)


@pytest.mark.parametrize(
    "mechanism",
    [KRR(2, 1.0), KRR(4, 1.0), KRR(8, 4.0), OneBitMean(0.5), UnaryEncoding(5, 1.0)],
    ids=repr,
)
def test_a_sound_mechanism_passes_and_the_bound_is_near(
    mechanism: Mechanism, coins: SeededCoins
) -> None:
    result = audit(mechanism, coins)
    assert not result.violated
    assert result.exact == mechanism.realised_epsilon
    assert 0.9 * mechanism.epsilon < result.lower_bound <= mechanism.epsilon


@pytest.mark.parametrize("k", [5, 40])
def test_a_true_bit_that_is_never_flipped_is_caught(k: int, coins: SeededCoins) -> None:
    result = audit(NeverFlipsTrueBit(k, 1.0), coins)
    assert result.violated
    assert result.lower_bound > 5
    assert "VIOLATES" in str(result)


def test_a_long_code_is_audited_by_its_telling_bits(coins: SeededCoins) -> None:
    result = audit(UnaryEncoding(64, 1.0), coins)
    assert result.exact is None
    assert 0.85 < result.lower_bound <= 1
    assert "channel not enumerated" in str(result)


def test_a_channel_that_exceeds_its_claim_is_caught_exactly(coins: SeededCoins) -> None:
    result = audit(DeclaresTooMuch(4, 0.5), coins, draws=2000)
    assert result.violated
    assert result.exact == pytest.approx(1.0)
    assert result.lower_bound < 0.5  # its sampler is the sound one


def test_the_path_of_a_single_answer_is_audited_apart(coins: SeededCoins) -> None:
    mechanism = CarelessWithOne(4, 1.0)
    assert not audit(mechanism, coins, draws=20_000).violated
    assert audit(mechanism, coins, draws=20_000, draw=one_by_one).violated


def test_a_statistic_reveals_what_no_single_bit_does(coins: SeededCoins) -> None:
    class Masked(UnaryEncoding):
        """Hide the true bit behind a random one, as a hash seed would."""

        def randomize_many(self, values: ArrayLike, coins: Coins) -> Codes:
            mask = coins.bernoulli_many(1 << 63, np.asarray(values).size)
            bits = (np.asarray(values) == 0) ^ mask
            return np.stack([mask, bits, mask], axis=1).astype(np.uint8)

    def unmasked(codes: Codes) -> NDArray[np.int64]:
        return (codes[:, 0] ^ codes[:, 1]).astype(np.int64)

    result = audit(Masked(24, 1.0), coins, values=(0, 1), draws=5000, statistic=unmasked)
    assert result.violated


@pytest.mark.parametrize(
    "mechanism",
    [
        LocalHashing(8, 1.0),
        LOLOHA.calibrate(8, 1.0, 2.0),
        CountMeanSketch(8, 1.0, 16, 16),
        HadamardCountMeanSketch(8, 1.0, 16, 16),
    ],
    ids=lambda mechanism: mechanism.name,
)
def test_reports_with_a_hash_function_are_audited_by_what_they_support(
    mechanism: Mechanism, coins: SeededCoins
) -> None:
    result = audit(mechanism, coins, draws=100_000)
    assert result.exact is None
    assert 0.9 < result.lower_bound <= 1


@pytest.mark.parametrize(
    "mechanism",
    [
        pytest.param(RAPPOR.calibrate(1.0, 2.0), id="rappor", marks=pytest.mark.slow),
        pytest.param(DBitFlip(16, 1.0, 4), id="dbitflip"),
    ],
)
def test_reports_of_a_few_drawn_questions_are_audited_by_their_answers(
    mechanism: Mechanism, coins: SeededCoins
) -> None:
    result = audit(mechanism, coins, draws=400_000)
    assert result.exact is None
    assert 0.85 < result.lower_bound <= 1  # few of the reports tell any two values apart


@pytest.mark.parametrize(
    "mechanism",
    [HadamardResponse(8, 1.0), OrderedExponential(8, 1.0), ChannelTable(2, 1.0, TABLE)],
    ids=lambda mechanism: mechanism.name,
)
def test_categories_are_audited_whether_their_oracle_is_pure_or_not(
    mechanism: Mechanism, coins: SeededCoins
) -> None:
    result = audit(mechanism, coins, draws=20_000)
    assert result.exact == mechanism.realised_epsilon
    assert result.lower_bound > 0.5


def test_a_sound_mechanism_is_accused_no_more_often_than_stated(coins: SeededCoins) -> None:
    # At confidence 1/2 each of the two bounds fails with at most 1/4: accusations are frequent
    # enough to count, and must stay below one half.
    accused = [audit(KRR(2, 1.0), coins, draws=1000, confidence=0.5).violated for _ in range(300)]
    assert np.mean(accused) < 0.5


def test_delta_forgives_rare_violations(coins: SeededCoins) -> None:
    class SometimesTells(KRR):
        def randomize_many(self, values: ArrayLike, coins: Coins) -> Codes:
            codes = super().randomize_many(values, coins)
            tells = coins.bernoulli_many((1 << 64) // 10, codes.size)
            return np.where(tells, np.asarray(values), codes)

    mechanism = SometimesTells(4, 0.5)
    assert audit(mechanism, coins).violated
    assert not audit(mechanism, coins, delta=0.1).violated


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"values": (1,)}, "at least 2 values and 100 draws, got 1 and 200000"),
        ({"draws": 50}, "at least 2 values and 100 draws, got 4 and 50"),
        ({"confidence": 1.0}, "confidence must lie strictly between 0 and 1"),
        ({"delta": 1.0}, r"delta in \[0, 1\), got 0.99 and 1.0"),
        ({"values": (0, 9)}, "categories must lie in 0..3"),
    ],
)
def test_nonsense_is_refused(options: dict[str, object], message: str, coins: SeededCoins) -> None:
    with pytest.raises(InvalidInput, match=message):
        audit(KRR(4, 1.0), coins, **options)  # type: ignore[arg-type]
