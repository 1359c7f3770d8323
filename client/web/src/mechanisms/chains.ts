/** Permanent plus instantaneous chains: randomise once for life, then once per report. */

import type { Coins } from "../coins.js";
import { certainlyAtMost, type Fraction, fraction, MAX_EPSILON, ONE } from "../core/exact.js";
import { drawKrr, krrRatio } from "./krr.js";
import {
  type Chance,
  chance,
  fromLittleEndian,
  type Integers,
  type Kind,
  littleEndian,
  type Rounds,
  widthOf,
} from "./mechanism.js";
import { drawUnary, oddsRatio, rowBytes, tossRow } from "./unary.js";

/**
 * k-RR drawn once per category and kept, then k-RR of it for each report.
 *
 * Source: Arcolezi, Couchot, Al Bouna and Xiao, "Improving the utility of locally differentially private
 * protocols for longitudinal and multidimensional frequency estimates", DCN 2022.
 */
export const krrChain: Kind = {
  fields: ["k", "permanent", "instantaneous"],
  make(given) {
    const k = given.categories(2 ** 32);
    const { permanent, instantaneous, ratio, memoRatio } = readChain(given, k);
    const width = widthOf(k);
    const rounds: Rounds = {
      ratio: memoRatio,
      noisy: true,
      deviceBytes: 0,
      enroll: () => new Uint8Array(),
      key: (_, value) => value,
      memoize: (_, value, coins) => littleEndian(drawKrr(k, permanent, value, coins), width),
      report(memo, coins) {
        const value = fromLittleEndian(memo);
        given.check(value < k, "memo");
        return littleEndian(drawKrr(k, instantaneous, value, coins), width);
      },
    };
    return { k, width, ratio, rounds, draw: atOnce(rounds) };
  },
};

/** The two rounds of a chain of k-RR. */
export interface Chain {
  readonly permanent: Chance;
  readonly instantaneous: Chance;
  readonly ratio: Fraction;
  readonly memoRatio: Fraction;
}

/** Return a chain of k-RR over k answers; throw `InvalidInput` where a round alone tells more than e^32. */
export function readChain(given: Integers, k: number): Chain {
  const [permanent, instantaneous] = [given.chance("permanent"), given.chance("instantaneous")];
  const memoRatio = krrRatio(k, permanent.t);
  checkRound(given, memoRatio);
  checkRound(given, krrRatio(k, instantaneous.t));
  // Two k-RR in turn are one: their probabilities to keep multiply.
  const kept = (ONE - permanent.t) * (ONE - instantaneous.t);
  const other = ONE * ONE - kept;
  return { permanent, instantaneous, ratio: fraction(other + BigInt(k) * kept, other), memoRatio };
}

/**
 * Unary encoding drawn once per category and kept, then its bits flipped for each report.
 *
 * Source: Erlingsson, Pihur and Korolova, "RAPPOR", CCS 2014; Arcolezi et al., DCN 2022.
 */
export const unaryChain: Kind = {
  fields: ["k", "permanent*", "instantaneous*"],
  make(given) {
    const k = given.categories(2 ** 20);
    const [p, q] = readPair(given, "permanent");
    const pair = readPair(given, "instantaneous");
    const memoRatio = oddsRatio(fraction(p.t, ONE), fraction(q.t, ONE));
    checkRound(given, memoRatio);
    const width = rowBytes(k);
    const rounds: Rounds = {
      ratio: memoRatio,
      noisy: true,
      deviceBytes: 0,
      enroll: () => new Uint8Array(),
      key: (_, value) => value,
      memoize: (_, value, coins) => drawUnary(k, p, q, value, coins),
      report(memo, coins) {
        given.check((memo[width - 1]! & ~(0xff >> (-k & 7))) === 0, "memo");
        return flipRow(memo, k, ...pair, coins);
      },
    };
    const ratio = oddsRatio(through(p, pair), through(q, pair));
    return { k, width, ratio, rounds, draw: atOnce(rounds) };
  },
};

/** A round over bits: the chances that a 1 stays 1, and that a 0 becomes 1. */
export type Pair = readonly [own: Chance, other: Chance];

/** Return the chance of a 1 that was a 1 with chance `t` before a round. */
export function through({ t }: Chance, [own, other]: Pair): Fraction {
  return fraction(t * own.t + (ONE - t) * other.t, ONE * ONE);
}

/** Return a row of bits after a round: a 1 stays 1 with `own`, a 0 becomes 1 with `other`. */
export function flipRow(
  row: Uint8Array,
  columns: number,
  own: Chance,
  other: Chance,
  coins: Coins,
): Uint8Array {
  const drawn = tossRow(other, columns, coins);
  if (own.t + other.t === ONE) return drawn.map((byte, i) => byte ^ row[i]!); // one coin a bit is enough
  const kept = tossRow(own, columns, coins);
  return drawn.map((byte, i) => (row[i]! & kept[i]!) | (~row[i]! & byte));
}

/** Return the round of a field's two integers; throw `InvalidInput` where they are none. */
export function readPair(given: Integers, field: string): Pair {
  const [own, other, ...more] = given.list(field);
  given.check(own !== undefined && other !== undefined && !more.length, field);
  const pair = [chance(given.name, field, own!), chance(given.name, field, other!)] as const;
  given.check(other! < own!, field);
  return pair;
}

function checkRound(given: Integers, ratio: Fraction): void {
  given.check(certainlyAtMost(ratio, fraction(BigInt(MAX_EPSILON))), "permanent, instantaneous");
}

/** Return the draw of a device that answers but once: both rounds in turn. */
export function atOnce<V extends number | string>(
  rounds: Rounds<V>,
): (value: V, coins: Coins) => Uint8Array {
  return (value, coins) => rounds.report(rounds.memoize(rounds.enroll(coins), value, coins), coins);
}
