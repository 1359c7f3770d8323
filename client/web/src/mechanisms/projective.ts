/** Projective geometry response: supports that are hyperplanes over a finite field. */

import { coin, uniform } from "../core/draws.js";
import { ONE } from "../core/exact.js";
import { InvalidInput } from "../errors.js";
import { fieldOf } from "./field.js";
import { includeRatio, type Kind, littleEndian, widthOf } from "./mechanism.js";

/**
 * Report a point of a projective space, likelier one on the category's hyperplane.
 *
 * Source: Feldman, Nelson, Nguyen and Talwar, "Private frequency estimation via projective geometry", ICML 2022.
 */
export const projective: Kind = {
  fields: ["k", "order", "dimension", "include"],
  make(given) {
    const k = given.categories(2 ** 20);
    const order = given.within("order", 2, 65521);
    const dimension = given.within("dimension", 2, 32);
    const field = fieldOf(order);
    const points = pointsOf(order, dimension);
    if (!field || order ** dimension > 2 ** 32 || points < k || points > 2 ** 24) {
      throw new InvalidInput(
        `projective: no space of ${k}..2^24 points has order ${order} and dimension ${dimension}`,
      );
    }
    const include = given.chance("include");
    const on = pointsOf(order, dimension - 1);
    given.check(include.t * BigInt(points) > BigInt(on) * ONE, "include");
    const width = widthOf(points);

    /** Return a number to the base `order` as a vector, the most significant digit first. */
    const vector = (number: number): number[] => {
      const digits: number[] = [];
      for (let j = 0; j < dimension; j++) {
        digits.unshift(number % order);
        number = Math.floor(number / order);
      }
      return digits;
    };
    /** Return a point's vector as a number, less the point's own number, by the digits after the leading 1. */
    const gap = (free: number): number => order ** free - pointsOf(order, free);

    return {
      k,
      width,
      ratio: includeRatio(include, on, order ** (dimension - 1)),
      draw(value, coins) {
        const isOn = coin(include, coins);
        let level = 0;
        while (level + 1 < dimension && value >= pointsOf(order, level + 1)) level++;
        const v = vector(value + gap(level));
        const pivot = dimension - 1 - level;
        // A uniform vector, whose coordinate at the value's leading 1 is replaced by the only one that makes
        // the product 0, or 1: each point on the hyperplane, or off it, is then as likely as another.
        let y: number[];
        do {
          y = vector(uniform(order ** dimension, coins));
          let product = 0;
          for (const [j, a] of v.entries()) product = field.add(product, field.multiply(a, y[j]!));
          y[pivot] = field.add(y[pivot]!, field.add(Number(!isOn), field.negative(product)));
        } while (!y.some(Boolean));
        const first = y.findIndex(Boolean);
        const scale = field.inverse(y[first]!);
        const number = y.reduce((sum, digit) => sum * order + field.multiply(scale, digit), 0);
        return littleEndian(number - gap(dimension - 1 - first), width);
      },
    };
  },
};

/** Return the number of points of a projective space of that many coordinates. */
function pointsOf(order: number, dimension: number): number {
  return Math.round((order ** dimension - 1) / (order - 1));
}
