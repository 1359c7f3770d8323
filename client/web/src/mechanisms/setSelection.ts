/** Threshold set selection: a random set of members, likelier where it shares enough of them with the own one. */

import { coin, distinct, uniformOfMany } from "../core/draws.js";
import { fraction, ONE } from "../core/exact.js";
import { type Kind, littleEndian, widthOf, type SetParts } from "./mechanism.js";
import { codesOf } from "./subset.js";

/**
 * Report `size` of items + most members: at least `meet` of the own set's with include / 2^64.
 *
 * The own set is filled up to `most` members with dummies, the members from `items` on, in order. So every set
 * has as many codes of each number of common members, and the ratio is the same for any two sets.
 */
export const setSelection: Kind<SetParts> = {
  fields: ["items", "most", "size", "meet", "include"],
  make(given) {
    const items = given.within("items", 1, 2 ** 16);
    const most = given.within("most", 1, Math.min(items, 2 ** 10));
    const size = given.within("size", 1, 2 ** 12);
    const meet = given.within("meet", 1, Math.min(most, size));
    const include = given.chance("include");
    const members = items + most;
    given.check(members <= 2 ** 16, "items, most");
    given.check(size - meet < items, "size, meet");
    const ways = sharing(items, most, size);
    const met = running(ways.slice(meet));
    const missed = running(ways.slice(0, meet));
    const [inside, outside] = [met.at(-1)!, missed.at(-1)!];
    given.check(include.t * (inside + outside) > inside * ONE, "include");
    const single = widthOf(members);
    const { width, write } =
      size === 1
        ? { width: single, write: ([member]: number[]) => littleEndian(member!, single) }
        : codesOf(members, size);
    return {
      items,
      most,
      width,
      ratio: fraction(include.t * outside, (ONE - include.t) * inside),
      draw(value, coins) {
        const [ends, first] = coin(include, coins) ? [met, meet] : [missed, 0];
        const drawn = uniformOfMany(ends.at(-1)!, coins);
        const shared = first + ends.findIndex((end) => drawn < end);
        const dummies = Array.from({ length: most - value.length }, (_, i) => items + i);
        const filled = [...value, ...dummies];
        const own = Array.from(distinct(most, shared, coins), (position) => filled[position]!);
        const others = Array.from(distinct(items, size - shared, coins), (position) =>
          outsideOf(filled, position),
        );
        return write([...own, ...others]);
      },
    };
  },
};

/** Return the member at a position among those that are not in a set, whose members increase. */
function outsideOf(filled: readonly number[], position: number): number {
  let member = position;
  for (const own of filled) {
    if (own > member) break;
    member++;
  }
  return member;
}

/** Return by j how many codes share j members with a filled set: C(most, j) C(items, size - j). */
function sharing(items: number, most: number, size: number): bigint[] {
  const least = Math.max(0, size - items); // fewer cannot be shared: there are too few others
  let ways = least ? binomial(most, least) : binomial(items, size);
  const found = Array.from({ length: least }, () => 0n);
  for (let j = least; j <= Math.min(most, size); j++) {
    found.push(ways);
    ways =
      (ways * BigInt(most - j) * BigInt(size - j)) / (BigInt(j + 1) * BigInt(items - size + j + 1));
  }
  return found;
}

function binomial(n: number, k: number): bigint {
  let found = 1n;
  for (let i = 1; i <= k; i++) found = (found * BigInt(n - k + i)) / BigInt(i);
  return found;
}

function running(values: readonly bigint[]): bigint[] {
  let end = 0n;
  return values.map((value) => (end += value));
}
