/** Waves: shifted patterns of bins, for shares of ranges in one or two dimensions. */

import { coin, cumulated, pick, uniform } from "../core/draws.js";
import { ONE } from "../core/exact.js";
import { checkWeights } from "./histogram.js";
import {
  chance,
  includeRatio,
  type Integers,
  type Kind,
  largestOf,
  littleEndian,
  widthOf,
} from "./mechanism.js";

/** The most bins, and the most codes. */
const MAX_BINS = 256;
const MAX_CODES = 2 ** 15;

/**
 * Draw a pattern of bins, then a bin u in it with include / 2^64, else outside; report the pattern and by how
 * much u must be shifted to be the own bin.
 */
export const waves: Kind = {
  fields: ["sides*", "masks*", "chances*", "include*"],
  make(given) {
    const sides = given.list("sides").map(Number);
    given.check(sides.length <= 2 && sides.every((side) => side >= 1), "sides");
    const k = sides.reduce((product, side) => product * side, 1);
    given.check(k >= 2 && k <= MAX_BINS, "sides");
    const [columns, rows] = [sides.at(-1)!, sides.length === 2 ? sides[0]! : 1];
    const [chances, includes] = [given.list("chances"), given.list("include")];
    const count = chances.length;
    given.check(count >= 2 && count * k <= MAX_CODES, "chances");
    checkWeights(given, chances);
    given.check(includes.length === count, "include");
    const patterns = readPatterns(given, k, count).map((inside, j) => {
      const include = chance(given.name, "include", includes[j]!);
      const others = bins(k).filter((bin) => !inside.includes(bin));
      given.check(include.t * BigInt(k) > BigInt(inside.length) * ONE, "include");
      return { inside, others, include };
    });
    const drawn = cumulated(chances);
    const width = widthOf(count * k);
    return {
      k,
      width,
      ratio: largestOf(
        patterns.map(({ include, inside, others }) =>
          includeRatio(include, inside.length, others.length),
        ),
      ),
      draw(value, coins) {
        const j = pick(drawn, coins);
        const { inside, others, include } = patterns[j]!;
        const among = coin(include, coins) ? inside : others;
        const bin = among[uniform(among.length, coins)]!;
        const down = modulo(Math.floor(value / columns) - Math.floor(bin / columns), rows);
        const across = modulo((value % columns) - (bin % columns), columns);
        return littleEndian(k * j + columns * down + across, width);
      },
    };
  },
};

/** Return the bins of each pattern, in order. */
function readPatterns(given: Integers, k: number, count: number): number[][] {
  const words = Math.ceil(k / 64);
  const masks = given.list("masks");
  given.check(masks.length === words * count, "masks");
  return Array.from({ length: count }, (_, j) => {
    const own = masks.slice(words * j, words * (j + 1));
    const last = own[words - 1]!;
    given.check(last >> BigInt(k - 64 * (words - 1)) === 0n, "masks");
    const inside = bins(k).filter((bin) => (own[bin >> 6]! >> BigInt(bin & 63)) & 1n);
    given.check(inside.length > 0 && inside.length < k, "masks");
    return inside;
  });
}

function bins(k: number): number[] {
  return Array.from({ length: k }, (_, bin) => bin);
}

function modulo(x: number, m: number): number {
  return ((x % m) + m) % m;
}
