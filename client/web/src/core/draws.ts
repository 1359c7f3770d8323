/**
 * The exact draws that mechanisms are made of, each from the next bytes of one stream.
 *
 * docs/wire-mechanisms.md fixes which bytes each draw takes. A word is 8 bytes, the least significant
 * first; here it is two integers of 32 bits, because BigInts cost several times as much.
 */

import type { Coins } from "../coins.js";
import { type Fraction, fraction, fromDouble, ONE } from "./exact.js";

/** An integer 0..2^64 as two, the low one of 32 bits, ready to be compared with words. */
export interface Threshold {
  readonly high: number;
  readonly low: number;
}

/** Return the threshold of an integer in 0..2^64. */
export function threshold(value: bigint): Threshold {
  return { high: Number(value >> 32n), low: Number(value & 0xffffffffn) };
}

/** Draw one word; return true with probability exactly t / 2^64. */
export function coin(t: Threshold, coins: Coins): boolean {
  const low = coins.uint32();
  const high = coins.uint32();
  return high < t.high || (high === t.high && low < t.low);
}

/** Draw one word, 0..2^64 - 1. */
export function word(coins: Coins): bigint {
  const low = coins.uint32();
  return (BigInt(coins.uint32()) << 32n) | BigInt(low);
}

const WORD = 2 ** 32;

/** Below this, products of two remainders and a half word are exact in doubles. */
const EASY = 2 ** 26;

/** Draw words until one is below 2^64 - 2^64 mod m; return it modulo m, for 1 <= m <= 2^32. */
export function uniform(m: number, coins: Coins): number {
  if (m > EASY) return Number(uniformOfMany(BigInt(m), coins));
  const half = WORD % m;
  const rejected = (half * half) % m; // 2^64 mod m
  for (;;) {
    const low = coins.uint32();
    const high = coins.uint32();
    if (high < WORD - 1 || low < WORD - rejected) return ((high % m) * half + low) % m;
  }
}

/** Draw as `uniform`, for m >= 1 of any size: above 2^64 by several words at once, the first the least significant. */
export function uniformOfMany(m: bigint, coins: Coins): bigint {
  let words = 1n;
  while (m > 1n << (64n * words)) words++;
  const range = 1n << (64n * words);
  for (;;) {
    let drawn = 0n;
    for (let i = 0n; i < words; i++) drawn |= word(coins) << (64n * i);
    if (drawn < range - (range % m)) return drawn % m;
  }
}

/** Weights that sum to 2^64, ready to draw from: how many outcomes end at or below a word. */
export interface Weights {
  readonly highs: Uint32Array;
  readonly lows: Uint32Array;
}

/** Return weights to draw from; they sum to 2^64, and some may be 0. */
export function cumulated(weights: readonly bigint[]): Weights {
  const ends: Threshold[] = [];
  let end = 0n;
  for (const weight of weights) {
    end += weight;
    if (end < ONE) ends.push(threshold(end)); // no word reaches the others
  }
  return {
    highs: Uint32Array.from(ends, (t) => t.high),
    lows: Uint32Array.from(ends, (t) => t.low),
  };
}

/** Draw one word; return the first outcome whose running sum of weights exceeds it. */
export function pick(weights: Weights, coins: Coins): number {
  const low = coins.uint32();
  return placeOf(weights, coins.uint32(), low);
}

/** Return the first outcome whose running sum of weights exceeds a word; all end before it: their number. */
export function placeOf({ highs, lows }: Weights, high: number, low: number): number {
  let first = 0;
  let last = highs.length;
  while (first < last) {
    const middle = (first + last) >> 1;
    const end = highs[middle]!;
    if (high > end || (high === end && low >= lows[middle]!)) first = middle + 1;
    else last = middle;
  }
  return first;
}

/**
 * Draw 8 n coins, packed in n bytes, each 1 with probability exactly t / 2^64.
 *
 * Each coin is a number that falls below t / 2^64. The bits of all numbers are compared with those of t
 * together, from the highest: each round draws n bytes, whose ones say which undecided numbers agree.
 */
export function toss(t: Threshold, n: number, coins: Coins): Uint8Array {
  const padded = (n + 3) & ~3; // so that 32 coins are compared at a time
  const heads = new Uint32Array(padded / 4).fill(t.high < WORD ? 0 : -1); // no coin is drawn for 0 and 2^64
  const open = new Uint32Array(padded / 4).fill(-1);
  const drawn = new Uint32Array(padded / 4);
  const drawnBytes = new Uint8Array(drawn.buffer, 0, n);
  new Uint8Array(open.buffer).fill(0, n);
  let { high, low } = t;
  for (let undecided = 1; undecided && high | low;) {
    coins.fill(drawnBytes);
    const one = high >>> 31;
    undecided = 0;
    for (let i = 0; i < drawn.length; i++) {
      const was = open[i]!;
      const still = was & drawn[i]!;
      if (one) heads[i]! |= was ^ still;
      open[i] = still;
      undecided |= still;
    }
    high = (high << 1) | (low >>> 31);
    low <<= 1;
  }
  return new Uint8Array(heads.buffer, 0, n);
}

/** Draw a uniform set of `size` integers of 0..count-1 by `size` words or more (Floyd). */
export function distinct(count: number, size: number, coins: Coins): Set<number> {
  const chosen = new Set<number>();
  for (let last = count - size; last < count; last++) {
    const drawn = uniform(last + 1, coins);
    chosen.add(chosen.has(drawn) ? last : drawn);
  }
  return chosen;
}

/** Round x in [-1, 1] at random to a point 0..grid, exactly: (x + 1) / 2 grid in expectation. */
export function point(x: number, grid: number, coins: Coins): number {
  return rounded(position(x, grid), coins);
}

/** Round as `point`, but from the nearest multiple of 2^-32: a double beside a grid point's counts as the grid point. */
export function place(x: number, grid: number, coins: Coins): number {
  return rounded({ n: nearest(x, grid), d: 1n << 32n }, coins);
}

/** Return where x in [-1, 1] lies on 0..grid, in 2^-32 steps, to the nearest. */
export function nearest(x: number, grid: number): bigint {
  const { n, d } = position(x, grid);
  return ((n << 33n) + d) / (2n * d);
}

/** Return where x in [-1, 1] lies on 0..grid. */
function position(x: number, grid: number): Fraction {
  const { n, d } = fromDouble(x);
  return fraction((n + d) * BigInt(grid), 2n * d);
}

/** Round a fraction >= 0 down, or with the chance of its rest up. */
function rounded({ n, d }: Fraction, coins: Coins): number {
  const whole = n / d;
  const rest = ((n - whole * d) * ONE) / d;
  return Number(whole) + Number(coin(threshold(rest), coins));
}
