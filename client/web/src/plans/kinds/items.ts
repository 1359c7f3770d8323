/** Answers that are sets of items, or ratings of some of several things. Errors about an answer tell its type only. */

import type { Coins } from "../../coins.js";
import { coin, distinct, threshold, uniform, word } from "../../core/draws.js";
import { fromDouble, ONE, plus, times } from "../../core/exact.js";
import { InvalidInput } from "../../errors.js";
import type { Mechanism } from "../../mechanisms/mechanism.js";
import { check, checkNames, checkRange, type Encoded, Kind, Names } from "./index.js";

/** A rating: the place of what is rated, and its share of the scale over 2^64, rounded down. */
export type Rating = readonly [key: number, share: bigint];

abstract class OfItems extends Kind {
  readonly inputs = ["set"] as const;
  /** The most items or ratings of one answer. */
  abstract readonly most: number;
  protected readonly names: Names;

  /** `items` is how many items a mechanism has to be for. */
  constructor(
    what: string,
    labels: readonly string[],
    least: 1 | 2,
    readonly items: number,
  ) {
    super(labels);
    checkNames(what, labels, least);
    this.names = new Names(labels);
  }

  override async check(mechanism: Mechanism, memo: number): Promise<void> {
    await super.check(mechanism, memo);
    const { name, k } = mechanism;
    const isFor = name === "set_bits" ? this.name === "set" : mechanism.most === this.most;
    check(
      k === this.items && isFor,
      `${name} does not fit ${this.kind} answers of at most ${this.most} items`,
    );
  }
}

/**
 * An answer that is a set of some of `values`: of none up to `atMost` of them, 0 standing for all.
 *
 * With `clamp` a set of more items counts as `atMost` of them, drawn uniformly. Throws `InvalidInput` for fewer
 * than two values, values that are empty or alike, and an `atMost` above their number.
 */
export class SetOf extends OfItems {
  readonly name = "set";
  readonly kind = "set";
  readonly most: number;

  constructor(
    readonly values: readonly string[],
    atMost: number,
    readonly clamp: boolean,
  ) {
    super("values", values, 2, values.length);
    this.most = mostOf(atMost, values.length, "values");
  }

  /** Return the places of the items of an answer, an array or a Set, in increasing order; throw `InvalidInput` for
   * anything else. */
  encode(answer: unknown): readonly number[] {
    if (!Array.isArray(answer) && !(answer instanceof Set)) {
      throw new InvalidInput(`must be a list of some of ${this.names}, got a ${typeof answer}`);
    }
    const found = new Set<number>();
    for (const item of answer as Iterable<unknown>) {
      const place = this.names.find(item);
      check(
        place !== undefined,
        `must have items of ${this.names} alone, got another ${typeof item}`,
      );
      found.add(place!);
    }
    check(found.size <= this.most || this.clamp, `must have at most ${this.most} items, got more`);
    return increasing(found);
  }

  /** Return a set of a size drawn uniformly, of items drawn uniformly, as `encode` does. */
  anything(coins: Coins): readonly number[] {
    const size = uniform(this.most + 1, coins);
    return increasing(distinct(this.values.length, size, coins));
  }

  /** Return a set as a mechanism takes it: `most` items of more, drawn uniformly. */
  override settled(value: Encoded, coins: Coins): readonly number[] {
    return some(value as readonly number[], this.most, coins);
  }
}

/**
 * An answer that rates some of `keys`, from none up to `atMost` (0: all), each from `low` to `high`.
 *
 * With `clamp`, of more ratings `atMost` count, drawn uniformly. Throws `InvalidInput` for no keys, keys that are
 * empty or alike, a scale that is none, and an `atMost` above the number of keys.
 */
export class Ratings extends OfItems {
  readonly name = "ratings";
  readonly kind = "ratings";
  readonly most: number;

  constructor(
    readonly keys: readonly string[],
    readonly low: number,
    readonly high: number,
    atMost: number,
    readonly clamp: boolean,
  ) {
    super("keys", keys, 1, 2 * keys.length); // "+" and "-" of each key
    checkRange(low, high);
    this.most = mostOf(atMost, keys.length, "keys");
  }

  /** Return the ratings of an answer, an object or a Map from keys to numbers, in the order of the keys' places;
   * throw `InvalidInput` for anything else. */
  encode(answer: unknown): readonly Rating[] {
    check(
      answer instanceof Map || isPlain(answer),
      `must map keys to ratings, got another ${typeof answer}`,
    );
    const given = answer instanceof Map ? [...answer] : Object.entries(answer as object);
    const found = new Map<number, bigint>();
    for (const [key, rating] of given as [unknown, unknown][]) {
      const place = this.names.find(key);
      check(
        place !== undefined && !found.has(place),
        `must rate each of ${this.names} once at most, got another ${typeof key}`,
      );
      found.set(place!, this.#share(rating));
    }
    check(
      found.size <= this.most || this.clamp,
      `must have at most ${this.most} ratings, got more`,
    );
    return [...found].sort(([a], [b]) => a - b);
  }

  #share(rating: unknown): bigint {
    const { low, high } = this;
    check(
      typeof rating === "number" || typeof rating === "bigint",
      `must have numbers as ratings, got a ${typeof rating}`,
    );
    const number = Number(rating);
    check(
      number >= low && number <= high,
      `must have ratings in [${low}, ${high}], got one outside`,
    );
    const least = times(fromDouble(low), { n: -1n, d: 1n });
    const [over, all] = [plus(fromDouble(number), least), plus(fromDouble(high), least)];
    return (over.n * all.d * ONE) / (over.d * all.n);
  }

  /** Return a number of ratings drawn uniformly, of keys and ratings drawn uniformly, as `encode` does. */
  anything(coins: Coins): readonly Rating[] {
    const size = uniform(this.most + 1, coins);
    const keys = increasing(distinct(this.keys.length, size, coins));
    return keys.map((key) => [key, word(coins)] as const);
  }

  /** Return ratings as a mechanism takes them: each, of those that count, as its key's item for "+" or the next
   * one for "-", drawn so that its mean is the rating. */
  override settled(value: Encoded, coins: Coins): readonly number[] {
    const kept = some(value as readonly Rating[], this.most, coins);
    return kept.map(([key, share]) => 2 * key + Number(!coin(threshold(share), coins)));
  }
}

/** Whether an answer is an object of keys alone: a promise or a date has none, and rates nothing. */
function isPlain(answer: unknown): boolean {
  if (typeof answer !== "object" || answer === null) return false;
  const parent = Object.getPrototypeOf(answer) as object | null;
  return parent === null || Object.getPrototypeOf(parent) === null; // also one of another window
}

function mostOf(atMost: number, names: number, what: string): number {
  check(
    atMost >= 0 && atMost <= names,
    `at_most must lie in 1..${names}, the number of ${what}, or be left out, got ${atMost}`,
  );
  return atMost || names;
}

function increasing(numbers: Iterable<number>): number[] {
  return [...numbers].sort((a, b) => a - b);
}

/** Return the items, or `most` of them drawn uniformly, in their order. */
function some<T>(items: readonly T[], most: number, coins: Coins): readonly T[] {
  if (items.length <= most) return items;
  return increasing(distinct(items.length, most, coins)).map((place) => items[place]!);
}
