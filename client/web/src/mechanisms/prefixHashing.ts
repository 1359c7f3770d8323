/** Prefix hashing: words of an open dictionary, as hashed prefixes of a few lengths. */

import { cumulated, pick, uniform } from "../core/draws.js";
import { drawKrr, krrRatio } from "./krr.js";
import { checkWeights } from "./histogram.js";
import { isOdd, type Kind, littleEndian, type WordParts } from "./mechanism.js";

/** The most letters of an alphabet, of a word, the most groups and buckets. */
const [MOST_LETTERS, LONGEST, MAX_GROUPS, MAX_BUCKETS] = [31, 12, 16, 256];

const BITS = 5n;

/**
 * Draw a group, which keeps the first lengths[group] letters, and a seed; hash these letters to a bucket, one bit
 * for each row that splitmix64 makes of the seed, and randomise the bucket by k-RR.
 *
 * Source: groups of prefix lengths are PEM's, Wang, Li and Jha, IEEE TDSC 18(2), 2021; the rest is optimised local
 * hashing by random parities. Steele, Lea and Flood, OOPSLA 2014, for splitmix64.
 */
export const prefixHashing: Kind<WordParts> = {
  fields: ["alphabet*", "lengths*", "chances*", "buckets", "resample"],
  make(given) {
    const alphabet = given.list("alphabet").map(Number);
    given.check(
      alphabet.length <= MOST_LETTERS && new Set(alphabet).size === alphabet.length,
      "alphabet",
    );
    given.check(
      alphabet.every((c) => c > 0 && c < 0x110000 && !(c >= 0xd800 && c < 0xe000)),
      "alphabet",
    );
    const lengths = given.list("lengths").map(Number);
    given.check(lengths.length >= 2 && lengths.length <= MAX_GROUPS, "lengths");
    given.check(
      lengths.every((each, i) => each >= (lengths[i - 1] ?? 1) && each <= LONGEST),
      "lengths",
    );
    const chances = given.list("chances");
    given.check(chances.length === lengths.length, "chances");
    checkWeights(given, chances);
    const buckets = given.within("buckets", 2, MAX_BUCKETS);
    const rows = Math.log2(buckets);
    given.check(Number.isInteger(rows), "buckets");
    const resample = given.chance("resample");
    const drawn = cumulated(chances);
    return {
      letters: alphabet.length,
      longest: lengths.at(-1)!,
      width: 6,
      ratio: krrRatio(buckets, resample.t),
      draw(word, coins) {
        const group = pick(drawn, coins);
        const seed = uniform(2 ** 32, coins);
        const prefix = word.slice(0, lengths[group]);
        const own = prefix.reduceRight((all, letter) => (all << BITS) | BigInt(letter), 0n);
        let bucket = 0;
        for (let i = 0; i < rows; i++) {
          const common = row(seed, i) & own;
          const [high, low] = [Number(common >> 32n), Number(common & 0xffffffffn)];
          if (isOdd(high) !== isOdd(low)) bucket |= 1 << i;
        }
        const code = new Uint8Array(6);
        code[0] = group;
        littleEndian(seed, 4, code, 1);
        code[5] = drawKrr(buckets, resample, bucket, coins);
        return code;
      },
    };
  },
};

const MASK = (1n << 64n) - 1n;

/** Return output `index` of splitmix64 from a seed, the first one being 0. */
function row(seed: number, index: number): bigint {
  let z = (BigInt(seed) + BigInt(index + 1) * 0x9e3779b97f4a7c15n) & MASK;
  z = ((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n) & MASK;
  z = ((z ^ (z >> 27n)) * 0x94d049bb133111ebn) & MASK;
  return z ^ (z >> 31n);
}
