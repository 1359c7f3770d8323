/** Logarithms of ratios, and doubles below fractions: what memos and policies need of exact arithmetic. */

import {
  approximate,
  before,
  compare,
  correct,
  doubleAbove,
  expBounds,
  type Fraction,
  fraction,
  fromDouble,
  neighbour,
  plus,
  roundedDown,
  value,
} from "./exact.js";

/** Return the largest double that is not above a fraction >= 0. */
export function doubleBelow(x: Fraction): number {
  const above = doubleAbove(x);
  return compare(fromDouble(above), x) > 0 ? neighbour(above, -1) : above;
}

/**
 * Return the smallest double that is certainly not below ln(ratio), for a ratio >= 1.
 *
 * ratio is rounded up to 60 digits, its logarithm to the nearest 60 digits, and the result is the smallest
 * double that is not below the next larger number of 60 digits.
 */
export function logAbove(ratio: Fraction): number {
  const excess = fraction(ratio.n - ratio.d, ratio.d);
  if (excess.n === 0n) return 0;
  const down = roundedDown(ratio);
  if (compare(value(down), ratio) < 0) down.digits++;
  const up = value(down);
  return correct(Math.log1p(approximate(excess)), (double) => {
    if (double === 0) return false;
    // The next number after the rounded logarithm is at most x: the logarithm is below the middle between
    // the number of 60 digits at x and the one before it.
    const last = roundedDown(fromDouble(double));
    const twice = plus(value(last), value(before(last)));
    return isBelowExp(up, fraction(twice.n, 2n * twice.d));
  });
}

function isBelowExp(ratio: Fraction, x: Fraction): boolean {
  for (let precision = 320n; ; precision *= 2n) {
    const [low, high] = expBounds(x, precision);
    if (ratio.n << precision <= low * ratio.d) return true;
    if (ratio.n << precision > high * ratio.d) return false;
  }
}
