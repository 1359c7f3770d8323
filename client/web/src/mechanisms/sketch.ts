/** Count-mean sketches: many categories hashed into few buckets by a public family. */

import { uniform } from "../core/draws.js";
import { fraction, ONE } from "../core/exact.js";
import { bucketOf, readPrime } from "./hashing.js";
import { drawHrr, orderFor } from "./hrr.js";
import {
  type Chance,
  chance,
  flipRatio,
  HALF,
  type Integers,
  type Kind,
  littleEndian,
  widthOf,
} from "./mechanism.js";
import { sha256AtOnce } from "./sha256.js";
import { drawUnary, rowBytes } from "./unary.js";

const FIELDS = ["k", "hashes", "buckets", "seed", "prime", "flip"];

/** Apple's CMS: a hash function, and the bucket as symmetric unary encoding. */
export const cms: Kind = {
  fields: FIELDS,
  make(given) {
    const { k, hashes, buckets, flip, bucket } = readSketch(given);
    const own = chance("cms", "ONE - flip", ONE - flip.t);
    const { n, d } = flipRatio(flip);
    const width = 4 + rowBytes(buckets);
    return {
      k,
      width,
      ratio: fraction(n * n, d * d),
      draw(value, coins) {
        const i = uniform(hashes, coins);
        const code = littleEndian(i, 4, new Uint8Array(width));
        code.set(drawUnary(buckets, own, flip, bucket(i, value), coins), 4);
        return code;
      },
    };
  },
};

/** Apple's HCMS: a hash function, and the bucket by one bit of the Hadamard matrix. */
export const hcms: Kind = {
  fields: FIELDS,
  make(given) {
    const { k, hashes, buckets, flip, bucket } = readSketch(given);
    const order = orderFor(buckets);
    const codes = 2 * (order - 1);
    const width = widthOf(hashes * codes);
    return {
      k,
      width,
      ratio: flipRatio(flip),
      draw(value, coins) {
        const i = uniform(hashes, coins);
        return littleEndian(i * codes + drawHrr(order, flip, bucket(i, value), coins), width);
      },
    };
  },
};

interface Sketch {
  readonly k: number;
  readonly hashes: number;
  readonly buckets: number;
  readonly flip: Chance;
  /** Return the bucket of a value under hash function i. */
  bucket(i: number, value: number): number;
}

/**
 * Return the public family: ((a v^2 + b v + c) mod prime) buckets // prime, with a, b and c from SHA-256.
 *
 * Source: Apple's Differential Privacy Team, "Learning with privacy at scale", 2017.
 */
function readSketch(given: Integers): Sketch {
  const k = given.categories(2 ** 20);
  const hashes = given.within("hashes", 1, 2 ** 16);
  const buckets = given.within("buckets", 2, 2 ** 15);
  given.check(hashes * buckets <= 2 ** 24, "hashes, buckets");
  const [seed] = given.list("seed") as [bigint];
  const prime = readPrime(given, k, buckets);
  const flip = given.chance("flip", HALF);
  return {
    k,
    hashes,
    buckets,
    flip,
    bucket(i, value) {
      const message = new DataView(new ArrayBuffer(16));
      message.setBigUint64(0, seed, true);
      message.setUint32(8, i, true);
      const digest = new DataView(sha256AtOnce(new Uint8Array(message.buffer)).buffer);
      const [a, b, c] = [0, 8, 16].map((at) =>
        Number(digest.getBigUint64(at, true) % BigInt(prime)),
      );
      return bucketOf(((a! * value + b!) % prime) * value + c!, prime, buckets);
    },
  };
}
