/** Subset selection: a random set of categories, in which the own one is likelier. */

import { coin, distinct } from "../core/draws.js";
import { ONE } from "../core/exact.js";
import { includeRatio, type Kind, littleEndian } from "./mechanism.js";
import { rowBytes, setBit } from "./unary.js";

/**
 * Report `size` of the k categories: the own one among them with include / 2^64, the others uniformly.
 *
 * A code is a mask, or the sorted categories of 1 or 2 bytes each where these are shorter.
 * Source: Ye and Barg, "Optimal schemes for discrete distribution estimation under locally differential
 * privacy", IEEE Trans. Information Theory 64(8), 2018.
 */
export const subset: Kind = {
  fields: ["k", "size", "include"],
  make(given) {
    const k = given.categories(2 ** 16);
    const size = given.within("size", 1, Math.floor(k / 2));
    const include = given.chance("include");
    given.check(include.t * BigInt(k) > BigInt(size) * ONE, "include");
    const { width, write } = codesOf(k, size);
    return {
      k,
      width,
      ratio: includeRatio(include, size, k - size),
      draw(value, coins) {
        const own = coin(include, coins);
        const others = distinct(k - 1, size - Number(own), coins);
        const members = Array.from(others, (other) => other + Number(other >= value));
        if (own) members.push(value);
        return write(members);
      },
    };
  },
};

/** Return how `size` of n members are written: as a mask, or as the sorted members where these are shorter. */
export function codesOf(
  n: number,
  size: number,
): { width: number; write(members: number[]): Uint8Array } {
  const bytes = n <= 256 ? 1 : 2;
  const masked = rowBytes(n) <= size * bytes;
  const width = masked ? rowBytes(n) : size * bytes;
  return {
    width,
    write(members) {
      const code = new Uint8Array(width);
      if (masked) {
        for (const member of members) setBit(code, member, true);
      } else {
        members
          .sort((a, b) => a - b)
          .forEach((member, i) => littleEndian(member, bytes, code, i * bytes));
      }
      return code;
    },
  };
}
