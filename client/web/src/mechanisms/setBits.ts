/** One bit of a set: a random item, and a randomised answer whether the set has it. */

import { coin, uniform } from "../core/draws.js";
import { flipRatio, HALF, type Kind, littleEndian, widthOf, type SetParts } from "./mechanism.js";

/**
 * Report a uniform item v as 2 v + 1 where the set has it, else as 2 v; the last bit is inverted with
 * flip / 2^64. Of every set of the items.
 *
 * Source: Warner, "Randomized response", JASA 60(309), 1965, for the bit.
 */
export const setBits: Kind<SetParts> = {
  fields: ["items", "flip"],
  make(given) {
    const items = given.within("items", 2, 2 ** 15);
    const flip = given.chance("flip", HALF);
    const width = widthOf(2 * items);
    return {
      items,
      most: items,
      width,
      ratio: flipRatio(flip),
      draw(value, coins) {
        const item = uniform(items, coins);
        const bit = value.includes(item) !== coin(flip, coins);
        return littleEndian(2 * item + Number(bit), width);
      },
    };
  },
};
