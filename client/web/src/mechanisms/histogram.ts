/** Histogram encoding: noise on each coordinate of a one-hot vector. */

import { cumulated, pick } from "../core/draws.js";
import { fraction, ONE } from "../core/exact.js";
import { type Integers, type Kind, largestOf } from "./mechanism.js";

/**
 * Report a level of noise for every category; the own category's is mirrored.
 *
 * Source: Wang, Blocki, Li and Jha, "Locally differentially private protocols for frequency estimation",
 * USENIX Security 2017, section 4.1.
 */
export const she: Kind = {
  fields: ["k", "weights*"],
  make(given) {
    const k = given.categories(2 ** 16);
    const weights = given.list("weights");
    const last = weights.length - 1;
    given.check(last >= 1 && last <= 255, "weights");
    checkWeights(given, weights);
    const mean = weights.reduce((sum, weight, y) => sum + BigInt(y) * weight, 0n);
    given.check(2n * mean < BigInt(last) * ONE, "weights");
    const ratio = largestOf(weights.map((weight, y) => fraction(weight, weights[last - y]!)));
    const levels = cumulated(weights);
    return {
      k,
      width: k,
      ratio: fraction(ratio.n ** 2n, ratio.d ** 2n),
      draw(value, coins) {
        const code = new Uint8Array(k);
        for (let v = 0; v < k; v++) code[v] = pick(levels, coins);
        code[value] = last - code[value]!;
        return code;
      },
    };
  },
};

/** Throw `InvalidInput` unless weights are positive and sum to 2^64. */
export function checkWeights(given: Integers, weights: readonly bigint[]): void {
  const sum = weights.reduce((a, b) => a + b, 0n);
  given.check(sum === ONE && weights.every((weight) => weight > 0n), "weights");
}
