"""Sums over two servers: shares, distances, what the noise promises, and estimates of sums."""

import math
from fractions import Fraction

import numpy as np
import pytest

from ldp import Coins, InvalidInput
from ldp.two_servers import account, records, rounding, shares
from ldp.two_servers.skellam import skellam


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_the_sums_of_both_shares_are_the_sum_of_the_values(bits: int) -> None:
    coins = Coins()
    values = np.random.default_rng(1).integers(-300, 300, (50, 33))
    parts = [shares.split(row, bits, coins) for row in values]
    a = shares.sum_seeds([seed for seed, _ in parts], 33, bits)
    b = shares.sum_rests([rest for _, rest in parts], 33, bits)
    assert shares.join(a, b, bits).tolist() == values.sum(axis=0).tolist()
    # Without one device's two shares, the sum is that of the others: nothing is to recover.
    fewer = shares.sum_seeds([seed for seed, _ in parts[1:]], 33, bits)
    rest = shares.sum_rests([r for _, r in parts[1:]], 33, bits)
    assert shares.join(fewer, rest, bits).tolist() == values[1:].sum(axis=0).tolist()


def test_a_seed_stands_for_the_keystream_of_aes() -> None:
    # NIST SP 800-38A, F.1.5: not CTR but ECB of the counter's first block, which is zero here.
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    seed = bytes(range(32))
    block = Cipher(algorithms.AES(seed), modes.ECB()).encryptor().update(bytes(16))
    assert shares.expand(seed, 8, 16).astype("<u2").tobytes() == block


def test_shares_of_the_wrong_form_are_refused() -> None:
    with pytest.raises(InvalidInput, match="32 bytes"):
        shares.expand(b"short", 3, 16)
    with pytest.raises(InvalidInput, match="where 6 are due"):
        shares.parse(bytes(7), 3, 16)
    with pytest.raises(InvalidInput, match="where 6 are due"):
        shares.sum_rests([bytes(6), bytes(7)], 3, 16)
    with pytest.raises(InvalidInput, match="16, 32 or 64"):
        shares.dtype(12)
    with pytest.raises(InvalidInput, match="integers"):
        shares.split([0.5], 16, Coins())


def _naive_divergence(order: float, shift: int, variance: float) -> float:
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(40):
        reach = int(shift * order + 20 * math.sqrt(variance) + 80)
        pmf = {k: mpmath.besseli(k, variance) for k in range(reach + shift + 1)}
        norm = mpmath.exp(-variance)
        total = sum(
            norm * pmf[abs(k - shift)] ** order * pmf[abs(k)] ** (1 - order)
            for k in range(-reach, reach + 1)
        )
        return float(mpmath.log(total) / (order - 1))


@pytest.mark.parametrize(("order", "shift", "variance"), [(1.5, 1, 4), (2, 3, 16), (8, 2, 9)])
def test_the_exact_divergence_is_that_of_a_sum_of_40_digits(
    order: float, shift: int, variance: int
) -> None:
    found = account.divergence(order, shift, Fraction(variance))
    truth = _naive_divergence(order, shift, variance)
    assert truth <= found <= truth * (1 + 1e-9)


@pytest.mark.parametrize("variance", [1, 4, 16, 100, 2500])
def test_exact_is_at_most_published_is_at_most_order_times_rho(variance: int) -> None:
    v = Fraction(variance)
    for shift in (1, 2, 5):
        bound = account.rho(shift, shift * shift, v)
        for order in (2, 3, 8, 32):
            exact = account.divergence(order, shift, v)
            published = account.published(order, shift, shift * shift, v)
            assert exact <= published <= order * bound
        for real in (1.01, 1.2, 1.5, 2.5, 7.3):  # observed: the account uses integers alone
            assert account.divergence(real, shift, v) <= real * bound


def test_the_exact_divergence_is_near_the_gaussian() -> None:
    gaussian = 8 / (2 * 100)
    assert account.divergence(8, 1, Fraction(100)) / gaussian == pytest.approx(0.99864, abs=1e-5)
    assert account.exact(8, 4, Fraction(100)) == pytest.approx(4 * 0.99864 * gaussian, rel=1e-4)


@pytest.mark.parametrize(
    ("cells", "shift", "epsilon", "delta"),
    [
        (2, 1, 8.0, 1e-6),
        (6, 1, 8.0, 1e-6),
        (6, 4, 30.0, 1e-6),
        (6, 64, 1.0, 1e-6),
        (20, 16, 0.5, 1e-9),
        (4, 2, 3, 1e-4),
    ],
)
def test_the_exact_epsilon_is_at_most_the_charged_one(
    cells: int, shift: int, epsilon: float, delta: float
) -> None:
    distances = cells * shift, cells * shift**2
    variance = records.calibrate(distances, account.largest_rho(epsilon, delta), 100, 0) * 100
    charged = account.epsilon_of(account.rho(*distances, variance), delta)
    exact = account.exact_epsilon(cells, shift, variance, delta)
    assert exact is not None
    assert exact <= charged <= epsilon
    if variance > 1000:  # nothing is gained by it for noise of this size
        assert exact > 0.999 * charged
    if (cells, shift, epsilon) == (6, 1, 8.0):  # as the page says
        assert round(exact, 1) == 6.0
    farther = account.exact_epsilon(cells, shift + 1, variance, delta)
    assert farther is not None
    assert farther > exact
    assert account.exact_epsilon(6, 1 << 16, Fraction(10**12), delta) is None


def test_the_divergence_grows_with_the_shift() -> None:
    """So the farthest records are those that differ most in each cell."""
    for variance in (Fraction(1, 4), Fraction(9), Fraction(400)):
        for order in (2, 7):
            each = [account.divergence(order, shift, variance) for shift in range(1, 30)]
            assert each == sorted(each)


def test_an_exact_curve_of_losses_would_charge_what_the_page_says() -> None:
    """The conversion from integer orders is what costs: the page says 0.927 for epsilon 1."""
    cells, shift, delta, grid = 6, 64, 1e-6, 1e-5
    rho = account.largest_rho(1.0, delta)
    variance = records.calibrate((cells * shift, cells * shift**2), rho, 1000, 0) * 1000
    size = int(12 * math.sqrt(variance)) + 60
    logs = account._log_pmf(float(variance), size + shift)
    k = np.arange(-size, size + 1)
    losses = np.ceil((logs[np.abs(k)] - logs[np.abs(k + shift)]) / grid).astype(int)
    of_one = np.bincount(losses - losses.min(), weights=np.exp(logs[np.abs(k)]))
    long = 1 << (len(of_one) * cells - 1).bit_length()
    of_all = np.fft.irfft(np.fft.rfft(of_one, long) ** cells, long)
    of_all = of_all[: len(of_one) * cells]
    loss = (np.arange(len(of_all)) + cells * losses.min()) * grid

    def delta_at(epsilon: float) -> float:
        beyond = loss > epsilon
        return float(np.sum(of_all[beyond] * -np.expm1(epsilon - loss[beyond])))

    assert delta_at(0.927) > delta > delta_at(0.928)

    def gaussian(rho: float, epsilon: float) -> float:  # Balle and Wang, ICML 2018, theorem 8
        mu = math.sqrt(2 * rho)
        below = [0.5 * math.erfc((epsilon / mu + s * mu / 2) / math.sqrt(2)) for s in (-1, 1)]
        return below[0] - math.exp(epsilon) * below[1]

    assert gaussian(1.149 * float(rho), 1.0) < delta < gaussian(1.151 * float(rho), 1.0)


def test_epsilon_is_the_least_over_the_orders() -> None:
    rho = Fraction(1, 20)
    epsilon = account.epsilon_of(rho, 1e-6)
    simple = 0.05 + 2 * math.sqrt(0.05 * math.log(1e6))
    assert 0.8 * simple < epsilon < simple
    with pytest.raises(InvalidInput, match="delta"):
        account.epsilon_of(rho, 0.0)


def test_noise_that_colluders_know_does_not_count() -> None:
    assert account.honest_variance(Fraction(3, 2), 100, 10) == 135
    with pytest.raises(InvalidInput, match="colluding < least"):
        account.honest_variance(Fraction(1), 10, 10)


SMALL = records.Layout(
    (records.Choice("colour", 3), records.Number("age", 0.0, 100.0), records.Choice("yes", 2)), 4
)


def test_the_distances_of_a_layout_are_those_of_every_two_records() -> None:
    assert SMALL.distances == SMALL.enumerated_distances() == (24, 96)


def test_the_least_noise_keeps_to_rho_and_less_does_not() -> None:
    rho = Fraction(1, 50)
    variance = records.calibrate(SMALL.distances, rho, least=1000, colluding=100)
    honest = account.honest_variance(variance, 1000, 100)
    assert account.rho(*SMALL.distances, honest) <= rho
    less = account.honest_variance(variance - Fraction(1, 1024), 1000, 100)
    assert account.rho(*SMALL.distances, less) > rho


def test_answers_outside_of_their_domain_are_refused() -> None:
    for answers in ({"colour": 3}, {"colour": True}, {"age": 101.0}, {"age": math.nan}, {"x": 1}):
        with pytest.raises(InvalidInput):
            SMALL.encode(answers, Coins())
    assert SMALL.encode({"age": None}, Coins()).tolist() == [0] * 7


def test_intervals_cover_the_truth() -> None:
    rng, n, rounds = np.random.default_rng(3), 2000, 400
    variance, noise = Fraction(3), 1.96
    hits = np.zeros(3)
    for _ in range(rounds):
        colours = rng.choice(3, n, p=[0.5, 0.3, 0.2])
        halves = rng.random(n) < 0.6
        cells = np.zeros((n, 7), dtype=np.int64)
        cells[np.arange(n), colours] = SMALL.scale
        # Ages of 0 and 100, so that the bound of the sampling error is exact.
        ages = rng.choice([0, SMALL.scale], n, p=[0.7, 0.3])
        cells[:, 3], cells[:, 4] = ages, SMALL.scale - ages
        cells[halves, 5] = SMALL.scale
        cells[~halves, 6] = SMALL.scale
        total = cells.sum(axis=0) + skellam(n * variance, 7, Coins())
        colour, age, _ = records.estimate(SMALL, total, n, variance)
        hits += (
            abs(colour.values[0] - 0.5) < noise * colour.errors[0],
            abs(age.values[0] - 30) < noise * age.errors[0],
            abs(colour.counts[1] - (colours == 1).sum()) < noise * colour.count_error,
        )
    assert (hits / rounds > 0.95 - 4 * math.sqrt(0.95 * 0.05 / rounds)).all()
    assert (hits / rounds < 0.95 + 4 * math.sqrt(0.95 * 0.05 / rounds)).all()


def test_a_record_carries_its_own_noise() -> None:
    drawn = np.array([SMALL.randomize({"colour": 1}, Fraction(9), Coins()) for _ in range(4000)])
    assert np.abs(drawn.mean(axis=0) - [0, 4, 0, 0, 0, 0, 0]).max() < 5 * 3 / math.sqrt(4000)


def test_random_rounding_is_unbiased_and_goes_to_a_neighbour() -> None:
    values = np.array([-1.25, 0.0, 0.5, 7.9, 2.0])
    drawn = np.array([rounding.round_randomly(values, Coins()) for _ in range(4000)])
    assert (np.abs(drawn - values) < 1).all()
    assert np.abs(drawn.mean(axis=0) - values).max() < 5 * 0.5 / math.sqrt(4000)
    with pytest.raises(InvalidInput, match="finite"):
        rounding.round_randomly([math.nan], Coins())


@pytest.mark.parametrize("tiny", [-5e-324, -1e-20, -(2.0**-54), -(2.0**-53), 1e-20])
def test_a_value_next_to_zero_is_rounded_to_zero(tiny: float) -> None:
    with np.errstate(all="raise"):
        assert not rounding.round_randomly(np.full(1000, tiny), Coins()).any()
        below = rounding.round_randomly(np.full(1000, 3 - 2.0**-51), Coins())
    assert (below == 3).all()


def test_an_update_next_to_zero_is_encoded_at_once() -> None:
    rng = np.random.default_rng(6)
    signs = rng.choice([-1.0, 1.0], 1024)
    update = rng.normal(size=1024) * 1e-22
    assert not rounding.encode_update(update, 1.0, 10.0, signs, Coins()).any()


def test_an_update_keeps_to_its_norm_and_comes_back() -> None:
    rng = np.random.default_rng(5)
    signs = rng.choice([-1.0, 1.0], 256)
    update = rng.normal(size=200)
    l1, squared = rounding.norm_bounds(1.0, 500.0, 256)
    encoded = rounding.encode_update(update, 1.0, 500.0, signs, Coins())
    assert int((encoded**2).sum()) <= squared
    assert int(np.abs(encoded).sum()) <= l1
    back = rounding.decode_sum(encoded, 500.0, signs)
    assert np.abs(back[:200] - update / np.linalg.norm(update)).max() < 0.01
    assert np.allclose(rounding.rotate_back(rounding.rotate(update, signs), signs)[:200], update)


def test_a_modulus_holds_the_sum() -> None:
    assert SMALL.least_bits(1000, Fraction(3)) == 16
    assert SMALL.least_bits(100_000, Fraction(3)) == 32


@pytest.mark.parametrize("delta", [1e-4, 1e-6, 1e-12, 1e-50])
@pytest.mark.parametrize("epsilon", [0.2, 0.5, 1.0, 8.0, 32.0])
def test_the_exact_comparison_agrees_with_the_one_in_doubles(epsilon: float, delta: float) -> None:
    most = account.largest_rho(epsilon, delta)
    assert account.keeps(most, epsilon, delta)
    assert account.epsilon_of(most, delta) <= epsilon * (1 + 1e-14)
    for more in (Fraction(1, 10**9), Fraction(1, 100), Fraction(1)):
        assert not account.keeps(most * (1 + more), epsilon, delta)


def test_no_noise_keeps_an_epsilon_that_is_not_above_zero() -> None:
    assert not account.keeps(Fraction(1, 10**6), 0.0, 1e-6)
    assert not account.keeps(Fraction(1, 10**6), -1.0, 1e-6)
