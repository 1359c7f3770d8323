/** Hadamard response: supports that are half blocks, by a row of a Hadamard matrix. */

import { coin, uniform } from "../core/draws.js";
import { ONE } from "../core/exact.js";
import { includeRatio, isOdd, type Kind, littleEndian, widthOf } from "./mechanism.js";

/**
 * Report one of blocks x width points; the points of the category's set are likelier.
 *
 * Category v has block v mod blocks and there the column c = 1 + v // blocks; its set is the points of the
 * block whose product with c has an even number of ones.
 * Source: Acharya, Sun and Zhang, "Hadamard response", AISTATS 2019, section 5.
 */
export const hadamard: Kind = {
  fields: ["k", "blocks", "include"],
  make(given) {
    const k = given.categories(2 ** 24);
    const blocks = given.within("blocks", 1, k);
    given.check((blocks & (blocks - 1)) === 0, "blocks");
    const include = given.chance("include");
    given.check(2n * BigInt(blocks) * include.t > ONE, "include");
    const width = 2 ** (32 - Math.clz32(Math.ceil(k / blocks))); // of a block
    const size = width / 2;
    const points = blocks * width;
    const bytes = widthOf(points);
    return {
      k,
      width: bytes,
      ratio: includeRatio(include, size, points - size),
      draw(value, coins) {
        const block = value % blocks;
        const column = 1 + Math.floor(value / blocks);
        const inside = coin(include, coins);
        const drawn = uniform(inside ? size : points - size, coins);
        // The points outside the set: first the other half of its block, then other blocks.
        if (drawn >= size) {
          const other = Math.floor((drawn - size) / width);
          const place = (drawn - size) % width;
          return littleEndian((other + Number(other >= block)) * width + place, bytes);
        }
        // A bit put in at the column's lowest one, of the value that the sign asks for: a bijection from
        // 0..size-1 to the half block of that sign.
        const low = column & -column;
        const point = drawn + (drawn & -low);
        return littleEndian(
          block * width + point + (isOdd(point & column) === inside ? low : 0),
          bytes,
        );
      },
    };
  },
};
