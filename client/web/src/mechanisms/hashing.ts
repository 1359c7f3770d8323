/** Local hashing: hash the category with a fresh function, report its bucket by k-RR. */

import type { Coins } from "../coins.js";
import { uniform } from "../core/draws.js";
import { drawKrr, krrRatio } from "./krr.js";
import type { Integers, Kind } from "./mechanism.js";

/** The largest prime: a v + b stays below 2^53. */
const MAX_PRIME = 2 ** 22;

/**
 * Report a fresh hash function v -> ((a v + b) mod prime) buckets // prime, and the category's bucket by k-RR.
 *
 * Source: Wang, Blocki, Li and Jha, "Locally differentially private protocols for frequency estimation",
 * USENIX Security 2017, section 4.4.
 */
export const hashing: Kind = {
  fields: ["k", "buckets", "prime", "resample"],
  make(given) {
    const hashes = readHashes(given);
    const { k, buckets, width } = hashes;
    const resample = given.chance("resample");
    return {
      k,
      width,
      ratio: krrRatio(buckets, resample.t),
      draw(value, coins) {
        const drawn = hashes.draw(coins);
        return hashes.code(drawn, drawKrr(buckets, resample, hashes.bucket(drawn, value), coins));
      },
    };
  },
};

/** The hash functions of one mechanism, each written as the integer a prime + b. */
export interface Hashes {
  readonly k: number;
  readonly buckets: number;
  readonly prime: number;
  /** The bytes of a code: a function and a bucket. */
  readonly width: number;
  draw(coins: Coins): number;
  bucket(drawn: number, value: number): number;
  code(drawn: number, bucket: number): Uint8Array;
}

/** Return the hash functions of a plan's integers; throw `InvalidInput` where they are none. */
export function readHashes(given: Integers): Hashes {
  const k = given.categories(2 ** 20);
  const buckets = given.within("buckets", 2, 2 ** 15);
  const prime = readPrime(given, k, buckets);
  const width = prime ** 2 * buckets <= 2 ** 32 ? 4 : 8;
  return {
    k,
    buckets,
    prime,
    width,
    draw: (coins) => uniform(prime, coins) * prime + uniform(prime, coins),
    bucket: (drawn, value) =>
      bucketOf(Math.floor(drawn / prime) * value + (drawn % prime), prime, buckets),
    code: (drawn, bucket) => bytesOf(BigInt(drawn) * BigInt(buckets) + BigInt(bucket), width),
  };
}

/** Return (residue mod prime) buckets // prime. */
export function bucketOf(residue: number, prime: number, buckets: number): number {
  return Math.floor(((residue % prime) * buckets) / prime);
}

/** Return the prime of hash functions; throw `InvalidInput` unless it is one, at least k and buckets. */
export function readPrime(given: Integers, k: number, buckets: number): number {
  const prime = given.within("prime", Math.max(k, buckets), MAX_PRIME);
  given.check(isPrime(prime), "prime");
  return prime;
}

/** Return whether n < 2^32 is prime, by trial division. */
export function isPrime(n: number): boolean {
  for (let divisor = 2; divisor * divisor <= n; divisor++) {
    if (n % divisor === 0) return false;
  }
  return n >= 2;
}

/** Return an integer, which may be above 2^53, in `width` bytes, the least significant first. */
export function bytesOf(value: bigint, width: number): Uint8Array {
  const eight = new DataView(new ArrayBuffer(8));
  eight.setBigUint64(0, value, true);
  return new Uint8Array(eight.buffer, 0, width).slice();
}
