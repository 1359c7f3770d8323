/** The domains of answers: categories and numbers. Errors about an answer tell its type only. */

import type { Coins } from "../coins.js";
import { uniform, word } from "../core/draws.js";
import { InvalidInput } from "../errors.js";
import type { Policy } from "../mechanisms/policy.js";
import { NEAR, Points } from "./points.js";
import type { Ratings, SetOf } from "./sets.js";
import type { Strings } from "./strings.js";
import { JOINERS, normal } from "./text.js";

/** Values with a smaller epsilon. */
export interface Class {
  readonly values: readonly string[];
  readonly scale: number;
}

/** The most bins of a number. */
const MOST_BINS = 256;

/** The most maps of an attribute: people at one level and map are one cohort of the estimate. */
const MOST_MAPS = 8;

/**
 * An answer that is one of `values`: at least two, all different, none empty.
 *
 * Where `sensitive` are given, the other values are ordinary: a report may reveal them. `classes` have a
 * smaller epsilon. Of `maps`, sensitive values by name, a person chooses one, which then holds as `sensitive`,
 * or none. Throws `InvalidInput` for values, sensitive ones, classes or maps that contradict each other.
 */
export class Categorical {
  readonly kind = "categorical";
  /** The values that a report may reveal. */
  readonly ordinary: readonly string[];
  private readonly categories: ReadonlyMap<string, number>;

  constructor(
    readonly values: readonly string[],
    readonly sensitive: readonly string[] = [],
    readonly classes: readonly Class[] = [],
    readonly maps: ReadonlyMap<string, readonly string[]> = new Map(),
  ) {
    this.categories = new Map(values.map((value, category) => [value, category]));
    const listed = [...sensitive, ...classes.flatMap((each) => each.values)];
    const isWhole = listed.length === values.length;
    checkNames("values", values, 2);
    check(!sensitive.length || !classes.length, "give sensitive values or classes, not both");
    check(
      listed.every((value) => this.categories.has(value)),
      "what is sensitive or in a class must be one of the values",
    );
    check(new Set(listed).size === listed.length, "a value is in two classes, or twice in one");
    for (const each of classes) {
      check(each.values.length > 0, "a class needs values");
      check(each.scale > 0 && each.scale <= 1, "the scale of a class must lie in (0, 1]");
    }
    check(
      !classes.length || !isWhole || classes.some(({ scale }) => scale === 1),
      "some values must have all of epsilon: give a class the scale 1",
    );
    const isSensitive = new Set(sensitive);
    this.ordinary = sensitive.length ? values.filter((value) => !isSensitive.has(value)) : [];
    if (maps.size) this.checkMaps();
  }

  /** The number of categories. */
  get size(): number {
    return this.values.length;
  }

  /** Return the domain as those have it who chose a map; "" stands for none. Throws `InvalidInput` where there
   * is no such map. */
  chosen(map: string): Categorical {
    const sensitive = map ? this.maps.get(map) : [];
    if (sensitive) return new Categorical(this.values, sensitive);
    throw new InvalidInput(
      `map must be one of ${[...this.maps.keys()].join(", ")}, got ${JSON.stringify(map)}`,
    );
  }

  /** Return the ordinary values that are not allowed. */
  notAmong(allowed: readonly string[]): readonly string[] {
    const among = new Set(allowed);
    return this.ordinary.filter((value) => !among.has(value));
  }

  private checkMaps(): void {
    check(
      !this.sensitive.length && !this.classes.length,
      "give sensitive values, classes or maps, one of them",
    );
    check(this.maps.size <= MOST_MAPS, `there may be ${MOST_MAPS} maps, got ${this.maps.size}`);
    const known = new Set<string>();
    for (const [name, sensitive] of this.maps) {
      const place = `map ${JSON.stringify(name)}`;
      check(/^[a-z][a-z0-9_]{0,63}$/.test(name), `${place}: a name is of a to z, 0 to 9 and "_"`);
      check(sensitive.length > 0, `${place} needs sensitive values: it would protect nothing`);
      check(
        this.chosen(name).ordinary.length > 0,
        `${place} lists all values: that holds for those who choose no map`,
      );
      const values = JSON.stringify([...sensitive].sort());
      check(!known.has(values), `${place} lists the same values as another map`);
      known.add(values);
    }
  }

  /** Return the category of an answer: a value, or a number that spells one; throw `InvalidInput` for another. */
  encode(answer: unknown): number {
    const category = this.categories.get(spelled(answer) ?? "");
    if (category === undefined) {
      const shown = this.values.length <= 8 ? this.values : [...this.values.slice(0, 7), "..."];
      throw new InvalidInput(`must be one of ${shown.join(", ")}, got another ${typeof answer}`);
    }
    return category;
  }

  /** Return a category drawn uniformly: it takes the place of an answer outside the domain. */
  anything(coins: Coins): number {
    return uniform(this.values.length, coins);
  }
}

/** Throw `InvalidInput` with this reason unless it holds. */
export function check(holds: boolean, reason: string): void {
  if (!holds) throw new InvalidInput(reason);
}

/** Throw `InvalidInput` unless there are `least` names or more, all different, none empty. */
export function checkNames(what: string, names: readonly string[], least: 1 | 2): void {
  check(names.length >= least, `${what} must be at least ${least === 1 ? "one" : "two"}`);
  check(!names.includes(""), `${what} must not be empty strings`);
  checkDiffer(what, names);
}

/** Throw `InvalidInput` where two names are the same, or but for joiners, which nobody sees. */
export function checkDiffer(what: string, names: readonly string[]): void {
  const seen = new Set(names.map((name) => name.replace(JOINERS, "")));
  check(seen.size === names.length, `${what} must differ, and look different`);
}

/**
 * Return the text of an answer that is one, in Unicode's normal form NFC, or a number as a value spells it, such as
 * "3" or "-0.25": whole numbers of at most 63 bits, and others from 0.000001 on.
 */
export function spelled(answer: unknown): string | undefined {
  if (typeof answer === "string") return normal(answer);
  if (typeof answer === "number" && !Number.isInteger(answer)) {
    return Number.isFinite(answer) && Math.abs(answer) >= 1e-6 ? `${answer}` : undefined;
  }
  const integer = typeof answer === "number" ? BigInt(answer) : answer;
  if (typeof integer !== "bigint" || integer >= 1n << 63n || -integer >= 1n << 63n)
    return undefined;
  return integer.toString();
}

/**
 * An answer that is a number in [low, high]; with `clamp`, others move to the nearer end.
 *
 * With a `step` a number counts as the last of the points low, low + step, ..., high that is not above it.
 * Throws `InvalidInput` for a range that is none, and as `Points`.
 */
export class Numeric {
  readonly kind = "numeric";
  /** The points that answers take; undefined where they can be any number in the range. */
  readonly points: Points | undefined;

  constructor(
    readonly low: number,
    readonly high: number,
    readonly clamp: boolean,
    readonly step = 0,
  ) {
    checkRange(low, high);
    this.points = step === 0 ? undefined : new Points(low, high, step);
  }

  /** Return an answer on the scale [-1, 1] of the mechanisms; throw `InvalidInput` for one outside the domain. */
  encode(answer: unknown): number {
    const { low, high } = this;
    const value = numberIn(low, high, this.clamp, answer);
    return this.place(value);
  }

  /** Return a finite number on the scale [-1, 1]. */
  protected place(value: number): number {
    if (this.points) return this.points.place(this.points.atOrBelow(value));
    const share = (value - this.low) / (this.high - this.low);
    return Math.min(1, Math.max(-1, 2 * share - 1));
  }

  /** The ranges of numbers that a report may reveal: none, where all are protected alike. */
  get ordinary(): readonly string[] {
    return [];
  }

  /** Return the ordinary ranges that the allowed ones do not cover; throw `InvalidInput` for those that are none. */
  notAmong(_: readonly string[]): readonly string[] {
    return [];
  }

  /** Return the policy to keep at `epsilon` on grid + 1 points; undefined where all numbers are protected alike. */
  policy(_: number, __: number): Policy | undefined {
    return undefined;
  }

  /** Return a place in [-1, 1] drawn uniformly, of the points or of 2^53 numbers; see `Categorical.anything`. */
  anything(coins: Coins): number {
    if (this.points) return this.points.place(uniform(this.points.length, coins));
    const drawn = word(coins) & ((1n << 53n) - 1n); // modulo 2^53, which divides 2^64
    return (2 * Number(drawn)) / (2 ** 53 - 1) - 1;
  }
}

/**
 * An answer that is a number in [low, high], of which only its bin is collected: one of 2 to 256, each with
 * its left end, and of equal width unless they have `edges`. With `clamp`, others move to the nearer end.
 *
 * Throws `InvalidInput` for a range that is none, and where doubles do not tell the ends of the bins apart.
 */
export class Binned {
  readonly kind = "binned";

  constructor(
    readonly low: number,
    readonly high: number,
    readonly clamp: boolean,
    readonly count: number,
    readonly edges: readonly number[] = [],
  ) {
    checkRange(low, high);
    check(count >= 2 && count <= MOST_BINS, `bins must lie in 2..${MOST_BINS}, got ${count}`);
    let last = -Infinity;
    for (let i = 0; i <= count; i++) {
      const end = edges[i] ?? (i === count ? high : low + (i / count) * (high - low));
      check(end > last, `doubles do not tell the ends of ${count} bins apart: take fewer bins`);
      last = end;
    }
  }

  /** The number of categories. */
  get size(): number {
    return this.count;
  }

  /** Return the bin of an answer; throw `InvalidInput` for one outside the domain. */
  encode(answer: unknown): number {
    const { low, high, count, edges } = this;
    const value = numberIn(low, high, this.clamp, answer);
    const inside = Math.min(Math.max(value, low), high);
    if (edges.length) return Math.min(count, edges.filter((edge) => edge <= inside).length) - 1;
    const position = ((inside - low) / (high - low)) * count;
    return Math.min(count - 1, Math.floor(position + NEAR));
  }

  /** Return a bin drawn uniformly; see `Categorical.anything`. */
  anything(coins: Coins): number {
    return uniform(this.count, coins);
  }
}

/**
 * Two numbers in bins, asked together: rectangle columns r + c has bin r of the first number and bin c of the
 * second. Throws `InvalidInput` where there are more than 256.
 */
export class Grid {
  readonly kind = "grid";
  readonly rows: number;
  readonly columns: number;

  constructor(first: Binned, second: Binned) {
    [this.rows, this.columns] = [first.count, second.count];
    const count = this.rows * this.columns;
    check(count <= MOST_BINS, `two numbers have at most ${MOST_BINS} rectangles, got ${count}`);
  }

  /** Return a rectangle drawn uniformly; see `Categorical.anything`. */
  anything(coins: Coins): number {
    return uniform(this.rows * this.columns, coins);
  }
}

/** Throw `InvalidInput` unless low < high, both finite, and what lies between them. */
export function checkRange(low: number, high: number): void {
  if (!(low < high && Number.isFinite(high - low))) {
    throw new InvalidInput(`low and high must be finite with low < high, got ${low} and ${high}`);
  }
}

/** Return an answer as a finite double, in [low, high] unless `clamp`; throw `InvalidInput` for another. */
function numberIn(low: number, high: number, clamp: boolean, answer: unknown): number {
  if (typeof answer !== "number" && typeof answer !== "bigint") {
    throw new InvalidInput(`must be a number, got a ${typeof answer}`);
  }
  const value = Number(answer);
  if (!Number.isFinite(value)) throw new InvalidInput("must be finite, got nan or an infinity");
  if (!clamp && !(low <= value && value <= high)) {
    throw new InvalidInput(`must lie in [${low}, ${high}], got one outside`);
  }
  return value;
}

/** What an attribute's answers can be. */
export type Domain = Categorical | Numeric | Binned | SetOf | Ratings | Strings;
