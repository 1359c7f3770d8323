"""Exact powers of distributions on a lattice, in integers."""


def exact_power(weights: list[int], times: int) -> list[int]:
    """Return the coefficients of (sum_i weights[i] z**i)**times, by one product of integers."""
    width = times * sum(weights).bit_length() + 1
    power = sum(weight << (i * width) for i, weight in enumerate(weights)) ** times
    data = power.to_bytes((power.bit_length() + 7) // 8 + width, "little")
    found = []
    for i in range((len(weights) - 1) * times + 1):
        start, shift = divmod(i * width, 8)
        piece = int.from_bytes(data[start : start + width // 8 + 2], "little")
        found.append(piece >> shift & ((1 << width) - 1))
    return found
