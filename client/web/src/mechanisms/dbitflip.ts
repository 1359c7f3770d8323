/** dBitFlip: a few bits of the unary encoding, drawn once and reported as they are. */

import type { Coins } from "../coins.js";
import { distinct, toss } from "../core/draws.js";
import { fraction } from "../core/exact.js";
import {
  flipRatio,
  fromLittleEndian,
  HALF,
  type Kind,
  littleEndian,
  type Rounds,
  widthOf,
} from "./mechanism.js";
import { rowBytes } from "./unary.js";

/**
 * Ask d categories, drawn for life, whether each is the value; flip each answer once.
 *
 * Source: Ding, Kulkarni and Yekhanin, "Collecting telemetry data privately", NIPS 2017, section 3.
 */
export const dbitflip: Kind = {
  fields: ["k", "d", "flip"],
  make(given) {
    const k = given.categories(2 ** 20);
    const d = given.within("d", 1, k);
    const flip = given.chance("flip", HALF);
    const { n, d: denominator } = flipRatio(flip);
    const power = BigInt(Math.min(d, 2));
    const ratio = fraction(n ** power, denominator ** power);
    const width = widthOf(2 * k);

    const write = (numbers: readonly number[]): Uint8Array => {
      const bytes = new Uint8Array(d * width);
      numbers.forEach((number, j) => littleEndian(number, width, bytes, j * width));
      return bytes;
    };
    /** Return the categories that a device asks; throw `InvalidInput` unless they ascend. */
    const read = (device: Uint8Array): number[] => {
      const asked = Array.from({ length: d }, (_, j) =>
        fromLittleEndian(device.subarray(j * width, (j + 1) * width)),
      );
      const ascend = asked.every(
        (category, j) => category < k && (j === 0 || category > asked[j - 1]!),
      );
      given.check(ascend, "device");
      return asked;
    };
    const rounds: Rounds = {
      ratio,
      noisy: false,
      deviceBytes: d * width,
      enroll: (coins) => write([...distinct(k, d, coins)].sort((a, b) => a - b)),
      key: (device, value) => (read(device).includes(value) ? value : k),
      memoize(device, value, coins: Coins) {
        const flips = toss(flip, rowBytes(d), coins);
        return write(
          read(device).map(
            (category, j) =>
              2 * category + (Number(category === value) ^ ((flips[j >> 3]! >> (j & 7)) & 1)),
          ),
        );
      },
      report: (memo) => memo.slice(),
    };
    return {
      k,
      width: d * width,
      ratio,
      rounds,
      draw: (value, coins) => rounds.memoize(rounds.enroll(coins), value, coins),
    };
  },
};
