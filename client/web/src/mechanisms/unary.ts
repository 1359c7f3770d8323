/** Unary encoding: one bit per category, each flipped on its own. */

import type { Coins } from "../coins.js";
import { coin, type Threshold, toss } from "../core/draws.js";
import { type Fraction, fraction, ONE } from "../core/exact.js";
import type { Kind } from "./mechanism.js";

/**
 * Report k independent bits: the own bit is 1 with own / 2^64, another's with other / 2^64.
 *
 * Source: Wang, Blocki, Li and Jha, "Locally differentially private protocols for frequency estimation",
 * USENIX Security 2017, sections 4.2 and 4.3.
 */
export const unary: Kind = {
  fields: ["k", "own", "other"],
  make(given) {
    const k = given.categories(2 ** 20);
    const [own, other] = [given.chance("own"), given.chance("other")];
    given.check(other.t < own.t, "other");
    return {
      k,
      width: rowBytes(k),
      ratio: oddsRatio(fraction(own.t, ONE), fraction(other.t, ONE)),
      draw: (value, coins) => drawUnary(k, own, other, value, coins),
    };
  },
};

/** Return one report of unary encoding. */
export function drawUnary(
  k: number,
  own: Threshold,
  other: Threshold,
  value: number,
  coins: Coins,
): Uint8Array {
  const row = tossRow(other, k, coins);
  setBit(row, value, coin(own, coins));
  return row;
}

/** Return p (1 - q) / ((1 - p) q), the worst ratio of bits that are 1 with p for the own and q elsewhere. */
export function oddsRatio(p: Fraction, q: Fraction): Fraction {
  return fraction(p.n * (q.d - q.n), (p.d - p.n) * q.n);
}

/** Return the bytes of a row of bits. */
export function rowBytes(columns: number): number {
  return Math.ceil(columns / 8);
}

/** Draw a row of bits, each 1 with probability t / 2^64; the bits beyond the columns are 0. */
export function tossRow(t: Threshold, columns: number, coins: Coins): Uint8Array {
  const row = toss(t, rowBytes(columns), coins);
  row[row.length - 1]! &= 0xff >> (-columns & 7);
  return row;
}

/** Set bit `column` of a row, which is bit column % 8 of byte column // 8. */
export function setBit(row: Uint8Array, column: number, bit: boolean): void {
  const mask = 1 << (column & 7);
  if (bit) row[column >> 3]! |= mask;
  else row[column >> 3]! &= ~mask;
}
