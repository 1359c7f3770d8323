/** LOLOHA: hash to a few buckets for life, then a k-RR chain over the buckets. */

import { expBelow, fromDouble, ONE } from "../core/exact.js";
import { atOnce, readChain } from "./chains.js";
import { bytesOf, readHashes } from "./hashing.js";
import { drawKrr } from "./krr.js";
import type { Kind, Rounds } from "./mechanism.js";

/**
 * Hash the category with a function drawn once for life; chain the bucket by k-RR.
 *
 * Source: Arcolezi, Pinzon, Palamidessi and Gambs, "Frequency estimation of evolving data under local
 * differential privacy", EDBT 2023.
 */
export const loloha: Kind = {
  fields: ["k", "buckets", "prime", "permanent", "instantaneous"],
  make(given, epsilon) {
    const hashes = readHashes(given);
    const { k, buckets, prime, width } = hashes;
    const { permanent, instantaneous, ratio, memoRatio } = readChain(given, buckets);
    // Python builds the local hashing of the same form, whose k-RR must have a coin for epsilon.
    const { n, d } = expBelow(fromDouble(epsilon));
    const many = BigInt(buckets);
    given.check(many * ONE * d <= (ONE - 1n) * (n + (many - 1n) * d), "epsilon");

    /** Return the function of a device; throw `InvalidInput` where it is none. */
    const read = (device: Uint8Array): number => {
      const drawn = Number(integer(device));
      given.check(drawn < prime ** 2, "device");
      return drawn;
    };
    const rounds: Rounds = {
      ratio: memoRatio,
      noisy: true,
      deviceBytes: width,
      enroll: (coins) => bytesOf(BigInt(hashes.draw(coins)), width),
      key: (device, value) => hashes.bucket(read(device), value),
      memoize(device, value, coins) {
        const drawn = read(device);
        return hashes.code(drawn, drawKrr(buckets, permanent, hashes.bucket(drawn, value), coins));
      },
      report(memo, coins) {
        const code = integer(memo);
        given.check(code < BigInt(prime) ** 2n * many, "memo");
        return hashes.code(
          Number(code / many),
          drawKrr(buckets, instantaneous, Number(code % many), coins),
        );
      },
    };
    return { k, width, ratio, rounds, draw: atOnce(rounds) };
  },
};

function integer(data: Uint8Array): bigint {
  return data.reduceRight((value, byte) => (value << 8n) | BigInt(byte), 0n);
}
