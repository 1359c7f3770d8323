/** The interface of every local randomizer, and what all of them check. */

import type { Coins } from "../coins.js";
import { compare, type Fraction, fraction, ONE } from "../core/exact.js";
import { threshold, type Threshold } from "../core/draws.js";
import { InvalidInput } from "../errors.js";
import type { Policy } from "./policy.js";

/**
 * An epsilon-LDP local randomizer by its exact integers; with a `policy`, one that keeps the policy.
 *
 * Guarantee: for every code and every two inputs, the ratio of the code's probabilities is at most
 * e^epsilon (or as the policy says). `build` has certified that in exact integers.
 */
export interface Mechanism {
  /** The name in a plan. */
  readonly name: string;
  /** The epsilon that the plan states; the integers realise at most this. */
  readonly epsilon: number;
  /** What is randomised: a category 0..k-1, a number in [-1, 1], a set of the items 0..k-1, a word's letters, or a text. */
  readonly input: "category" | "number" | "set" | "word" | "text";
  /** The number of categories, items or letters; 0 for numbers and texts. */
  readonly k: number;
  /** The most items of a set, or letters of a word; 0 for others. */
  readonly most: number;
  /** The bytes of one code: the same for every input. */
  readonly width: number;
  /** The largest exact ratio of two inputs' probabilities of one code, of those that a policy protects. */
  readonly ratio: Fraction;
  /** The policy that is kept instead of one epsilon for all pairs of categories. */
  readonly policy: Policy | undefined;
  /** The two rounds, if there are two: a memo for life, then a report of it. */
  readonly rounds: Rounds<number | string> | undefined;
  /** The exact integers, as the plan has them. */
  readonly integers: ReadonlyMap<string, readonly bigint[]>;
  /** Return the code of one report, `width` bytes; throw `InvalidInput` outside the domain. */
  randomize(value: Value, coins: Coins): Uint8Array;
}

/** What a mechanism randomises; a set as its items in increasing order, a word as its letters' places from 1 on. */
export type Value = number | readonly number[] | string;

/** What a mechanism whose reports share a permanent answer does; `Memoizer` says when. */
export interface Rounds<V extends number | string = number> {
  /** The largest ratio of two values' probabilities of one memo. */
  readonly ratio: Fraction;
  /** Whether a report is its memo with fresh noise, rather than the memo itself. */
  readonly noisy: boolean;
  /** The number of bytes that a device draws for life, possibly 0. */
  readonly deviceBytes: number;
  /** Draw the bytes that a device keeps for life, before any answer. */
  enroll(coins: Coins): Uint8Array;
  /** Return the key of a value's memo; throw `InvalidInput` for bytes that `enroll` cannot give. */
  key(device: Uint8Array, value: V): number | bigint;
  /** Draw a memo, in the form of a code; throw as `key` does. */
  memoize(device: Uint8Array, value: V, coins: Coins): Uint8Array;
  /** Draw a report of a memo; throw `InvalidInput` for a memo that is no code. */
  report(memo: Uint8Array, coins: Coins): Uint8Array;
}

/** What a kind of mechanism makes of its integers, for `build` to certify and complete. */
export interface Parts {
  /** The number of categories; absent for a mechanism of numbers. */
  readonly k?: number;
  readonly width: number;
  readonly ratio: Fraction;
  readonly policy?: Policy;
  readonly rounds?: Rounds;
  /** Draw the code of an input that was checked. */
  draw(value: number, coins: Coins): Uint8Array;
}

/** What a kind of mechanism of sets makes of its integers. */
export interface SetParts extends Pick<Parts, "width" | "ratio"> {
  /** The number of items, and the most of a set. */
  readonly items: number;
  readonly most: number;
  /** Draw the code of a set that was checked. */
  draw(value: readonly number[], coins: Coins): Uint8Array;
}

/** What a kind of mechanism of words makes of its integers. */
export interface WordParts extends Pick<Parts, "width" | "ratio"> {
  /** The number of letters of the alphabet, and the most of a word. */
  readonly letters: number;
  readonly longest: number;
  /** Draw the code of a word that was checked. */
  draw(value: readonly number[], coins: Coins): Uint8Array;
}

/** What a kind of mechanism of texts makes of its integers. */
export interface TextParts extends Pick<Parts, "width" | "ratio"> {
  readonly text: true;
  readonly rounds: Rounds<string>;
  /** Draw the code of a text. */
  draw(value: string, coins: Coins): Uint8Array;
}

/** What any kind of mechanism makes of its integers. */
export type AnyParts = Parts | SetParts | WordParts | TextParts;

/** A kind of mechanism: the names of its integers (a list's with "*"), and its maker. */
export interface Kind<P extends AnyParts = Parts> {
  readonly fields: readonly string[];
  /** Check the integers, all but the ratio; throw `InvalidInput`. */
  make(given: Integers, epsilon: number): P;
}

/** The integers of one mechanism in a plan, read with their ranges. */
export class Integers {
  constructor(
    readonly name: string,
    private readonly values: ReadonlyMap<string, readonly bigint[]>,
  ) {}

  /** Return a list of integers. */
  list(field: string): readonly bigint[] {
    return this.values.get(field)!;
  }

  /** Return one integer in low..high, both at most 2^53; throw `InvalidInput` outside. */
  within(field: string, low: number, high: number): number {
    const value = this.list(field)[0]!;
    if (value < low || value > high) {
      throw new InvalidInput(`${this.name}: ${field} must lie in ${low}..${high}, got ${value}`);
    }
    return Number(value);
  }

  /** Return the number of categories, 2..largest. */
  categories(largest: number): number {
    return this.within("k", 2, largest);
  }

  /** Return one probability over 2^64, strictly between 0 and `below`. */
  chance(field: string, below = ONE): Chance {
    return chance(this.name, field, this.list(field)[0]!, below);
  }

  /**
   * Throw `InvalidInput` that names the fields at fault unless `holds`.
   *
   * What they must be is in docs/wire-mechanisms.md: texts would be a tenth of a page's download, for plans
   * that only a faulty server has.
   */
  check(holds: boolean, fields: string): void {
    if (!holds)
      throw new InvalidInput(`${this.name}: ${fields}: expected what docs/wire-mechanisms.md says`);
  }
}

/** A probability over 2^64, strictly between 0 and 1: exactly, and ready to toss. */
export interface Chance extends Threshold {
  readonly t: bigint;
}

/** Return a probability; throw `InvalidInput` unless it lies strictly between 0 and `below`. */
export function chance(name: string, field: string, t: bigint, below = ONE): Chance {
  if (t <= 0n || t >= below) {
    throw new InvalidInput(`${name}: ${field} must lie strictly between 0 and ${below}, got ${t}`);
  }
  return { t, ...threshold(t) };
}

/** Half of `ONE`: a coin below it tells the truth more often than not. */
export const HALF = ONE / 2n;

/** Return (ONE - flip) / flip, the ratio of an answer that is inverted with a chance. */
export function flipRatio(flip: Chance): Fraction {
  return fraction(ONE - flip.t, flip.t);
}

/** Return include outside / ((ONE - include) inside): a code of `inside` codes against one of the others. */
export function includeRatio(include: Chance, inside: number, outside: number): Fraction {
  return fraction(include.t * BigInt(outside), (ONE - include.t) * BigInt(inside));
}

/** Return the largest of one fraction or more. */
export function largestOf(fractions: readonly Fraction[]): Fraction {
  return fractions.reduce((a, b) => (compare(a, b) < 0 ? b : a));
}

/** Return the bytes of an integer of `codes` different codes: 1, 2, 4 or 8. */
export function widthOf(codes: number): number {
  return [1, 2, 4].find((width) => codes <= 2 ** (8 * width)) ?? 8;
}

/** Write an integer below 2^53 into `width` bytes of an array, the least significant first; return the array. */
export function littleEndian(
  value: number,
  width: number,
  bytes = new Uint8Array(width),
  at = 0,
): Uint8Array {
  for (let i = 0; i < width; i++) {
    bytes[at + i] = value; // modulo 256
    value = Math.floor(value / 256);
  }
  return bytes;
}

/** Return the integer below 2^53 that bytes hold, the least significant first. */
export function fromLittleEndian(bytes: Uint8Array): number {
  return bytes.reduceRight((value, byte) => value * 256 + byte, 0);
}

/** Return whether an integer below 2^32 has an odd number of ones. */
export function isOdd(x: number): boolean {
  let odd = false;
  for (; x; x &= x - 1) odd = !odd;
  return odd;
}

/** Throw `InvalidInput`, without the value, unless it is a category 0..k-1, or without k in [-1, 1]. */
export function checkValue(
  name: string,
  k: number | undefined,
  value: Value,
): asserts value is number {
  if (
    typeof value !== "number" ||
    (k ? !(Number.isInteger(value) && value >= 0 && value < k) : !(value >= -1 && value <= 1))
  ) {
    throw new InvalidInput(
      `${name}: the value must be ${k ? `a category below ${k}` : "in [-1, 1]"}`,
    );
  }
}

/** Throw `InvalidInput`, without the value, unless it is at most `most` of the items 0..items-1, in increasing order. */
export function checkSet(
  name: string,
  { items, most }: SetParts,
  value: Value,
): asserts value is readonly number[] {
  const isItem = (item: number, i: number): boolean =>
    Number.isInteger(item) && item > ((value as number[])[i - 1] ?? -1) && item < items;
  if (!Array.isArray(value) || value.length > most || !value.every(isItem)) {
    throw new InvalidInput(
      `${name}: the value must be at most ${most} items below ${items}, in increasing order`,
    );
  }
}

/** Throw `InvalidInput`, without the value, unless it is a text. */
export function checkText(name: string, value: Value): asserts value is string {
  if (typeof value !== "string") throw new InvalidInput(`${name}: the value must be a text`);
}

/** Throw `InvalidInput`, without the value, unless it is a word: 1 to `longest` of the letters 1..letters. */
export function checkWord(
  name: string,
  { letters, longest }: WordParts,
  value: Value,
): asserts value is readonly number[] {
  const isLetter = (letter: number): boolean =>
    Number.isInteger(letter) && letter >= 1 && letter <= letters;
  if (
    !Array.isArray(value) ||
    value.length < 1 ||
    value.length > longest ||
    !value.every(isLetter)
  ) {
    throw new InvalidInput(
      `${name}: the value must be a word of 1 to ${longest} of the letters 1 to ${letters}`,
    );
  }
}
