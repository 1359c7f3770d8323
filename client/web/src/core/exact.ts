/**
 * Exact fractions of BigInts, and the comparison of a probability ratio with e^epsilon.
 *
 * A client must accept exactly the integers that the server certifies, so the comparison is fixed to the
 * last digit: docs/wire-mechanisms.md states it, and Python's `ldp.core.exact.exp_bounds` is the same.
 */

/** The integer that stands for probability one. */
export const ONE = 1n << 64n;

/** The largest epsilon of a mechanism. */
export const MAX_EPSILON = 32;

/** A rational number n / d with d > 0, not necessarily in lowest terms. */
export interface Fraction {
  readonly n: bigint;
  readonly d: bigint;
}

/** Return n / d; `d` must be positive. */
export function fraction(n: bigint, d = 1n): Fraction {
  return { n, d };
}

const bits = new DataView(new ArrayBuffer(8));

/** Return the fraction that a finite double is, exactly. */
export function fromDouble(x: number): Fraction {
  bits.setFloat64(0, x);
  const word = bits.getBigUint64(0);
  const exponent = Number((word >> 52n) & 0x7ffn);
  const mantissa = (word & ((1n << 52n) - 1n)) | (exponent ? 1n << 52n : 0n);
  const signed = word >> 63n ? -mantissa : mantissa;
  const shift = Math.max(exponent, 1) - 1075;
  return shift < 0 ? reduced(signed, -shift) : fraction(signed << BigInt(shift));
}

/** Return n / 2^shift without the twos that both share, so that sums of doubles stay small. */
function reduced(n: bigint, shift: number): Fraction {
  let rest = BigInt(shift);
  for (let step = 64n; step; step >>= 1n) {
    while (rest >= step && n % (1n << step) === 0n) {
      n >>= step;
      rest -= step;
    }
  }
  return fraction(n, 1n << rest);
}

/** Return a + b. */
export function plus(a: Fraction, b: Fraction): Fraction {
  return a.d === b.d ? fraction(a.n + b.n, a.d) : fraction(a.n * b.d + b.n * a.d, a.d * b.d);
}

/** Return a b. */
export function times(a: Fraction, b: Fraction): Fraction {
  return fraction(a.n * b.n, a.d * b.d);
}

/** Return a number below, equal to or above 0 as a is below, equal to or above b. */
export function compare(a: Fraction, b: Fraction): number {
  const difference = a.n * b.d - b.n * a.d;
  return difference < 0n ? -1 : difference > 0n ? 1 : 0;
}

/** Return the exact sum of finite doubles. */
export function sum(values: Iterable<number>): Fraction {
  let total = fraction(0n);
  for (const value of values) total = plus(total, fromDouble(value));
  return total;
}

/** Return the smallest double that is not below a fraction >= 0. */
export function doubleAbove(x: Fraction): number {
  return correct(approximate(x), (double) => compare(fromDouble(double), x) >= 0);
}

/** Return a double near a fraction >= 0 of any size. */
export function approximate({ n, d }: Fraction): number {
  const shift = 64 - (length(n) - length(d));
  const quotient = shift > 0 ? (n << BigInt(shift)) / d : n / (d << BigInt(-shift));
  return Number(quotient) * 2 ** (-shift >> 1) * 2 ** (-shift - (-shift >> 1));
}

const length = (n: bigint): number => n.toString(2).length;

/** Return the smallest double >= 0 that is `enough`, which all above it are too, from a near one. */
export function correct(near: number, enough: (double: number) => boolean): number {
  let double = Math.max(near, 0);
  while (!enough(double)) double = neighbour(double, 1);
  while (double > 0 && enough(neighbour(double, -1))) double = neighbour(double, -1);
  return double;
}

/** Return the double next to a double >= 0, in a direction 1 or -1. */
export function neighbour(double: number, direction: 1 | -1): number {
  bits.setFloat64(0, double);
  bits.setBigUint64(0, bits.getBigUint64(0) + BigInt(direction));
  return bits.getFloat64(0);
}

// --- e^x --------------------------------------------------------------------------------------

const DIGITS = 60;
const LEAST = 10n ** BigInt(DIGITS - 1); // the least number of 60 digits
const BEYOND = 10n * LEAST;

/** A decimal number: digits times 10^exponent. */
export interface Decimal {
  digits: bigint;
  exponent: number;
}

/**
 * Return the largest 60-digit number that is certainly below e^x, for a fraction x > 0.
 *
 * x is rounded down to 60 significant digits, e^x to the nearest number of 60 digits, half to even; the
 * result is the next smaller one.
 */
export function expBelow(x: Fraction): Fraction {
  return value(before(exp(value(roundedDown(x)))));
}

/** Tell whether ratio <= e^x can be certified, for a fraction x > 0. */
export function certainlyAtMost(ratio: Fraction, x: Fraction): boolean {
  return compare(ratio, expBelow(x)) <= 0;
}

/** Return a decimal number as a fraction. */
export function value({ digits, exponent }: Decimal): Fraction {
  const scale = 10n ** BigInt(Math.abs(exponent));
  return exponent < 0 ? fraction(digits, scale) : fraction(digits * scale);
}

/** Return the next smaller number of 60 digits. */
export function before({ digits, exponent }: Decimal): Decimal {
  return digits === LEAST
    ? { digits: BEYOND - 1n, exponent: exponent - 1 }
    : { digits: digits - 1n, exponent };
}

/** Return a fraction > 0 rounded down to 60 significant digits. */
export function roundedDown({ n, d }: Fraction): Decimal {
  // One of two neighbouring exponents gives 60 digits.
  let exponent = n.toString().length - d.toString().length - DIGITS;
  const scaled = (): bigint =>
    exponent < 0 ? (n * 10n ** BigInt(-exponent)) / d : n / (d * 10n ** BigInt(exponent));
  if (scaled() >= BEYOND) exponent++;
  return { digits: scaled(), exponent };
}

/** Return e^x, for 0 < x <= 128, rounded to the nearest 60 digits; with more bits until it is sure. */
function exp(x: Fraction): Decimal {
  for (let precision = 320n; ; precision *= 2n) {
    const [low, high] = expBounds(x, precision);
    const [first, last] = [rounded(low, precision), rounded(high, precision)];
    if (first.digits === last.digits && first.exponent === last.exponent) return first;
  }
}

/** Return bounds of e^x times 2^precision: a Taylor series of x / 512, squared nine times. */
export function expBounds({ n, d }: Fraction, precision: bigint): [bigint, bigint] {
  const one = 1n << precision;
  const x = ((n << precision) / d) >> 9n;
  let term = one;
  let total = 0n;
  for (let i = 1n; term; i++) {
    total += term;
    term = (term * x) / (i << precision);
  }
  for (let i = 0; i < 9; i++) total = (total * total) >> precision;
  // Rounding down loses less than a unit in each of at most `precision` terms, in x and in each square;
  // squaring multiplies what is lost, relatively, by at most 2^9 in all. The total is at least `one`.
  const lost = ((total * (precision + 16n)) >> precision) << 10n;
  return [total, total + lost + 1n];
}

/** Return x / 2^precision >= 1 to the nearest 60 digits, half to even. */
function rounded(x: bigint, precision: bigint): Decimal {
  const whole = (x >> precision).toString().length;
  const scaled = x * 10n ** BigInt(DIGITS - whole);
  const rest = scaled & ((1n << precision) - 1n);
  const half = 1n << (precision - 1n);
  let digits = scaled >> precision;
  if (rest > half || (rest === half && digits & 1n)) digits++;
  return digits === BEYOND
    ? { digits: LEAST, exponent: whole + 1 - DIGITS }
    : { digits, exponent: whole - DIGITS };
}
