/** The discrete Laplace mechanism for the mean. */

import { cumulated, pick, point } from "../core/draws.js";
import { fraction } from "../core/exact.js";
import { checkWeights } from "./histogram.js";
import { type Kind, largestOf, littleEndian, widthOf } from "./mechanism.js";
import { MAX_GRID } from "./numbers.js";

/**
 * Add two-sided geometric noise to the grid point and clamp the sum to the grid.
 *
 * Source: Ghosh, Roughgarden and Sundararajan, "Universally utility-maximizing privacy mechanisms", STOC 2009.
 */
export const laplace: Kind = {
  fields: ["grid", "tails*"],
  make(given) {
    const grid = given.within("grid", 1, MAX_GRID);
    const tails = given.list("tails");
    given.check(tails.length === grid + 1, "tails");
    const last = tails[grid]!;
    const steps = tails.slice(0, -1).map((tail, j) => tail - tails[j + 1]!); // noise of exactly j steps
    const side = [...steps.slice(1), last];
    const noise = [...side.slice().reverse(), steps[0]!, ...side]; // each end has all noise beyond it
    checkWeights(given, noise);
    const [low, high] = steps.reduce(
      ([l, h], step) => [step < l ? step : l, step > h ? step : h],
      [steps[0]!, 0n],
    );
    const width = widthOf(grid + 1);
    const weights = cumulated(noise);
    return {
      width,
      ratio: largestOf([fraction(tails[0]!, last), ...(grid > 1 ? [fraction(high, low)] : [])]),
      draw(value, coins) {
        const at = point(value, grid, coins) + pick(weights, coins) - grid;
        return littleEndian(Math.min(grid, Math.max(0, at)), width);
      },
    };
  },
};
