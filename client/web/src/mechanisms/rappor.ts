/** RAPPOR: words as noisy Bloom filters, flipped once for life and again in each report. */

import { uniform } from "../core/draws.js";
import { certainlyAtMost, type Fraction, fraction, MAX_EPSILON, ONE } from "../core/exact.js";
import { InvalidInput } from "../errors.js";
import { blake2b } from "./blake2b.js";
import { atOnce, flipRow, readPair, through } from "./chains.js";
import {
  fromLittleEndian,
  type Kind,
  littleEndian,
  type Rounds,
  type TextParts,
} from "./mechanism.js";
import { oddsRatio, rowBytes, setBit } from "./unary.js";

const COHORT_BYTES = 2;
const MAX_HASHES = 64;

const utf8 = new TextEncoder();

/**
 * Set `hashes` of `bits` bits by the word and the device's cohort, drawn for life; flip them for life, and again in
 * each report.
 *
 * Source: Erlingsson, Pihur and Korolova, "RAPPOR: randomized aggregatable privacy-preserving ordinal response",
 * CCS 2014.
 */
export const rappor: Kind<TextParts> = {
  fields: ["bits", "hashes", "cohorts", "permanent*", "instantaneous*"],
  make(given) {
    const hashes = given.within("hashes", 1, MAX_HASHES);
    const bits = given.within("bits", 2 * hashes, 2 ** 16);
    const cohorts = given.within("cohorts", 1, 2 ** 16);
    given.check(cohorts * bits <= 2 ** 24, "cohorts, bits");
    const [p, q] = readPair(given, "permanent");
    const pair = readPair(given, "instantaneous");
    const memoRatio = power(oddsRatio(fraction(p.t, ONE), fraction(q.t, ONE)), hashes);
    given.check(certainlyAtMost(memoRatio, fraction(BigInt(MAX_EPSILON))), "permanent");
    const width = COHORT_BYTES + rowBytes(bits);

    /** Return the cohort of a device, or of a memo; throw `InvalidInput` where there is none such. */
    const read = (bytes: Uint8Array, what: string): number => {
      const cohort = fromLittleEndian(bytes.subarray(0, COHORT_BYTES));
      given.check(cohort < cohorts, what);
      return cohort;
    };
    /** Return the row of bits that a word sets in a device's cohort. */
    const filter = (device: Uint8Array, word: string): Uint8Array => {
      const row = new Uint8Array(rowBytes(bits));
      for (const place of positions(word, read(device, "device"), hashes, bits))
        setBit(row, place, true);
      return row;
    };
    const joined = (head: Uint8Array, row: Uint8Array): Uint8Array => {
      const code = new Uint8Array(width);
      code.set(head.subarray(0, COHORT_BYTES));
      code.set(row, COHORT_BYTES);
      return code;
    };
    const rounds: Rounds<string> = {
      ratio: memoRatio,
      noisy: true,
      deviceBytes: COHORT_BYTES,
      enroll: (coins) => littleEndian(uniform(cohorts, coins), COHORT_BYTES),
      key: (device, word) =>
        filter(device, word).reduceRight((all, byte) => (all << 8n) | BigInt(byte), 0n),
      memoize: (device, word, coins) =>
        joined(device, flipRow(filter(device, word), bits, p, q, coins)),
      report(memo, coins) {
        read(memo, "memo");
        given.check((memo[width - 1]! & ~(0xff >> (-bits & 7))) === 0, "memo");
        return joined(memo, flipRow(memo.subarray(COHORT_BYTES), bits, ...pair, coins));
      },
    };
    const ratio = power(oddsRatio(through(p, pair), through(q, pair)), hashes);
    return { text: true, width, ratio, rounds, draw: atOnce(rounds) };
  },
};

/** Return the places that a word sets in a cohort; throw `InvalidInput` for a text that UTF-8 cannot write. */
function positions(word: string, cohort: number, hashes: number, bits: number): Set<number> {
  if (/\p{Cs}/u.test(word)) throw new InvalidInput("rappor: UTF-8 cannot write the value");
  const text = utf8.encode(word);
  const found = new Set<number>();
  for (let block = 0n; ; block++) {
    for (const drawn of blake2b(text, "hearsay", [BigInt(cohort), block])) {
      if (found.size === hashes) return found;
      found.add(Number((drawn * BigInt(bits)) >> 64n));
    }
  }
}

function power({ n, d }: Fraction, exponent: number): Fraction {
  return fraction(n ** BigInt(exponent), d ** BigInt(exponent));
}
