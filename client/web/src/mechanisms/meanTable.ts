/** Tables for the mean of a number: a grid point's row of weights over codes. */

import { cumulated, pick, place } from "../core/draws.js";
import { checkWeights } from "./histogram.js";
import { type Integers, type Kind, largestOf, type Parts } from "./mechanism.js";
import { columnRatios, readPolicy, type Rows } from "./table.js";

/** The most steps of the grid of a table. */
const MAX_GRID = 63;

/**
 * Round a number in [-1, 1] at random to a grid point i of 0..grid, then report code y with probability
 * weights[m i + y] / 2^64. Code y counts for a place; the mean place of the grid points' rows rises evenly.
 */
export const meanTable: Kind = {
  fields: ["grid", "places*", "weights*"],
  make(given) {
    const rows = readRows(given);
    return { ...drawing(rows), ratio: largestOf(columnRatios(rows)) };
  },
};

/** Report as `meanTable` under a policy for the grid points. */
export const policyMeanTable: Kind = {
  fields: ["grid", "places*", "weights*", "policy*"],
  make(given, epsilon) {
    const rows = readRows(given);
    const policy = readPolicy(given, rows.length);
    const ratio = policy.check(given.name, epsilon, policy.ratios(rows));
    return { ...drawing(rows), policy, ratio };
  },
};

function readRows(given: Integers): Rows {
  const grid = given.within("grid", 1, MAX_GRID);
  const [places, weights] = [given.list("places"), given.list("weights")];
  const m = places.length;
  given.check(
    m >= 2 &&
      m <= 256 &&
      places[0] === 0n &&
      places.every((place, y) => !y || place > places[y - 1]!) &&
      places[m - 1]! <= 2n ** 16n,
    "places",
  );
  given.check(weights.length === (grid + 1) * m, "grid, places, weights");
  const rows = Array.from({ length: grid + 1 }, (_, i) => weights.slice(m * i, m * (i + 1)));
  for (const row of rows) checkWeights(given, row);
  const means = rows.map((row) => row.reduce((sum, w, y) => sum + w * places[y]!, 0n));
  const step = means[1]! - means[0]!;
  const isEven = means.every((mean, i) => !i || mean - means[i - 1]! === step);
  given.check(step > 0n && isEven, "places, weights");
  return rows;
}

function drawing(rows: Rows): Pick<Parts, "width" | "draw"> {
  const weights = rows.map(cumulated);
  return {
    width: 1,
    draw: (value, coins) =>
      Uint8Array.of(pick(weights[place(value, rows.length - 1, coins)]!, coins)),
  };
}
