/** The hybrid of the piecewise and the one-bit mechanism for the mean. */

import { coin, point, uniform } from "../core/draws.js";
import { flipRatio, HALF, type Kind, largestOf, littleEndian, widthOf } from "./mechanism.js";
import { readWindow } from "./numbers.js";

/**
 * Answer by one bit with probability onebit / 2^64, otherwise by the piecewise mechanism.
 *
 * Source: Wang, Xiao, Yang et al., "Collecting and analyzing multidimensional data with local differential
 * privacy", ICDE 2019, section III-C.
 */
export const hybrid: Kind = {
  fields: ["grid", "window", "resample", "flip", "onebit"],
  make(given) {
    const window = readWindow(given);
    const { grid, codes } = window;
    const flip = given.chance("flip", HALF);
    const onebit = given.chance("onebit");
    given.check(2 + codes <= 2 ** 16, "grid, window");
    const width = widthOf(2 + codes);
    return {
      width,
      ratio: largestOf([flipRatio(flip), window.ratio]),
      draw(value, coins) {
        const at = point(value, grid, coins);
        if (!coin(onebit, coins)) return littleEndian(2 + window.report(at, coins), width);
        const end = uniform(grid, coins) < at;
        return littleEndian(Number(end !== coin(flip, coins)), width);
      },
    };
  },
};
