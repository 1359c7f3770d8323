/** k-ary randomized response. */

import type { Coins } from "../coins.js";
import { coin, uniform } from "../core/draws.js";
import { type Fraction, fraction, ONE } from "../core/exact.js";
import { type Chance, type Kind, littleEndian, widthOf } from "./mechanism.js";

/**
 * Keep the category, or with probability resample / 2^64 draw any of the k uniformly.
 *
 * Source: Kairouz, Bonawitz and Ramage, "Discrete distribution estimation under local privacy", ICML 2016.
 */
export const krr: Kind = {
  fields: ["k", "resample"],
  make(given) {
    const k = given.categories(2 ** 32);
    const resample = given.chance("resample");
    const width = widthOf(k);
    return {
      k,
      width,
      ratio: krrRatio(k, resample.t),
      draw: (value, coins) => littleEndian(drawKrr(k, resample, value, coins), width),
    };
  },
};

/** Return one report of k-RR. */
export function drawKrr(k: number, resample: Chance, value: number, coins: Coins): number {
  return coin(resample, coins) ? uniform(k, coins) : value;
}

/** Return the worst ratio of k-RR, 1 + k (ONE - resample) / resample. */
export function krrRatio(k: number, resample: bigint): Fraction {
  return fraction(resample + BigInt(k) * (ONE - resample), resample);
}
