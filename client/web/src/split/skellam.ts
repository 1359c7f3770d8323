/**
 * Exact draws of the Skellam distribution, the difference of two Poisson draws, in integers.
 *
 * The sum of independent Skellam draws is Skellam, so many devices add the noise that one trusted party would add. Each
 * word is the beginning of the binary digits of a uniform number, and bounds of the distribution function in integers
 * say which value it belongs to; a word that does not decide is continued by further ones. Python's
 * `ldp.two_servers.skellam` draws the same from the same bytes. The time that a draw takes is not hidden.
 * Source: Knuth and Yao, "The complexity of nonuniform random number generation", 1976.
 */

import type { Coins } from "../coins.js";
import { placeOf, threshold, word, type Weights } from "../core/draws.js";
import { type Fraction, fraction } from "../core/exact.js";

/** The largest variance of one draw: its table has some 250,000 entries. */
export const MOST_VARIANCE = 1n << 27n;

/** Bits of the tables beyond those that are compared, for the errors of their own roundings. */
const GUARD = 128n;

/** Noise of mean 0 and one variance; the table that it draws from is made with the first draw. */
export class Skellam {
  readonly #mean: Fraction;
  #limits: { readonly first: number; readonly ends: Weights } | undefined;

  constructor(readonly variance: Fraction) {
    this.#mean = fraction(variance.n, 2n * variance.d);
  }

  /**
   * Return `count` independent draws.
   *
   * Exact: each value's probability is that of the difference of two Poisson variables with means `variance` / 2, given
   * uniform bits. Cost: two words and two searches a draw.
   */
  draws(count: number, coins: Coins): number[] {
    const drawn = this.#poisson(2 * count, coins);
    return Array.from({ length: count }, (_, i) => drawn[i]! - drawn[count + i]!);
  }

  /** Return exact Poisson draws. */
  #poisson(count: number, coins: Coins): number[] {
    this.#limits ??= limitsOf(this.#mean);
    const { first, ends } = this.#limits;
    const words = new Uint32Array(2 * count);
    for (let i = 0; i < words.length; i++) words[i] = coins.uint32(); // all words, before any is continued
    return Array.from({ length: count }, (_, i) => {
      const [low, high] = [words[2 * i]!, words[2 * i + 1]!];
      const place = placeOf(ends, high, low);
      // A word that equals a limit may belong to either side of it.
      const isOnLimit = place > 0 && ends.highs[place - 1] === high && ends.lows[place - 1] === low;
      if (!isOnLimit) return first + place;
      return continued(this.#mean, (BigInt(high) << 32n) | BigInt(low), coins);
    });
  }
}

/** Return the value of a uniform number that begins with these 64 bits. */
function continued(mean: Fraction, begun: bigint, coins: Coins): number {
  let digits = begun;
  for (let bits = 128n; ; bits += 64n) {
    digits = (digits << 64n) | word(coins);
    const { first, lower, upper } = tableOf(mean, bits + GUARD);
    // The number lies in [digits, digits + 1) / 2^bits.
    const least = endingBy(upper, digits << GUARD);
    const most = endingBy(lower, ((digits + 1n) << GUARD) - 1n);
    if (least === most && (least || !first) && most < lower.length) return first + least;
  }
}

/** Return how many of some rising numbers are at most a bound. */
function endingBy(rising: readonly bigint[], bound: bigint): number {
  const found = rising.findIndex((each) => each > bound);
  return found < 0 ? rising.length : found;
}

/** Return the first value and floor(F(value) 2^64) from there on, rising. */
function limitsOf(mean: Fraction): { first: number; ends: Weights } {
  for (let bits = 64n + GUARD; ; bits += 64n) {
    const { first, lower, upper } = tableOf(mean, bits);
    const down = bits - 64n;
    const limits = lower.map((each) => each >> down);
    const isSure = upper.every((each, i) => {
      const most = each >> bits ? (1n << bits) - 1n : each;
      return most >> down === limits[i];
    });
    if (!isSure) continue; // two bounds are on either side of an integer
    const ends = limits.map(threshold);
    return {
      first,
      ends: {
        highs: Uint32Array.from(ends, ({ high }) => high),
        lows: Uint32Array.from(ends, ({ low }) => low),
      },
    };
  }
}

/** Bounds of a distribution function F at `first`, `first` + 1, ...: lower[i] <= F(first + i) 2^bits <= upper[i]. */
interface Table {
  readonly first: number;
  readonly lower: readonly bigint[];
  readonly upper: readonly bigint[];
}

/**
 * Return bounds of the Poisson distribution function, over 2^bits.
 *
 * The weights w(k) = mean^k / k! are taken over that of the mode, and from there outward each is the last one times a
 * ratio of at most 1, rounded down. So w(k) is short by less than the number of its steps, and so are the weights beyond
 * the last, summed, by less than that number times k at either end.
 */
function tableOf({ n: p, d: q }: Fraction, bits: bigint): Table {
  const one = 1n << (64n + bits); // the errors of weights vanish beside the bounds
  const mode = p / q;
  const above = [one];
  let k = mode;
  for (let weight = one; weight;) {
    k++;
    weight = (weight * p) / (q * k);
    above.push(weight);
  }
  const below: bigint[] = [];
  let first = mode;
  for (let weight = one; weight && first; first--) {
    weight = (weight * q * first) / p;
    below.push(weight);
  }
  const weights = [...below.reverse(), ...above];
  const count = BigInt(weights.length);
  const short = (count + 1n) * (count + 2n * k + 2n); // of all sums, tails included
  const total = weights.reduce((sum, weight) => sum + weight, 0n);
  const certain = 1n << bits;
  const [lower, upper]: bigint[][] = [[], []];
  let at = 0n;
  for (const weight of weights) {
    at += weight;
    lower!.push((at << bits) / (total + short));
    const most = (((at + short) << bits) + total - 1n) / total;
    upper!.push(most < certain ? most : certain);
  }
  return { first: Number(first), lower: lower!, upper: upper! };
}
