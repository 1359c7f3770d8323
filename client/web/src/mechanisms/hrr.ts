/** Hadamard randomized response: one bit, a sign of the Hadamard matrix. */

import type { Coins } from "../coins.js";
import { coin, uniform } from "../core/draws.js";
import {
  type Chance,
  flipRatio,
  HALF,
  isOdd,
  type Kind,
  littleEndian,
  widthOf,
} from "./mechanism.js";

/**
 * Draw a row of the Hadamard matrix, report its sign in the category's column, flipped with flip / 2^64.
 *
 * Source: Cormode, Kulkarni and Srivastava, "Marginal release under local differential privacy", SIGMOD 2018.
 */
export const hrr: Kind = {
  fields: ["k", "flip"],
  make(given) {
    const k = given.categories(2 ** 24);
    const flip = given.chance("flip", HALF);
    const order = orderFor(k);
    const width = widthOf(2 * (order - 1));
    return {
      k,
      width,
      ratio: flipRatio(flip),
      draw: (value, coins) => littleEndian(drawHrr(order, flip, value, coins), width),
    };
  },
};

/** Return the order of the matrix, the smallest power of two >= k. */
export function orderFor(k: number): number {
  return 2 ** (32 - Math.clz32(k - 1));
}

/** Return one report, 2 (row - 1) + bit. */
export function drawHrr(order: number, flip: Chance, value: number, coins: Coins): number {
  const row = 1 + uniform(order - 1, coins);
  return 2 * (row - 1) + Number(isOdd(row & value) !== coin(flip, coins));
}
