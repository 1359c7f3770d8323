/** Numbers that are protected by their value: sensitive regions, or a resolution. */

import { nearest } from "../../core/draws.js";
import { compare, type Fraction, fraction, fromDouble, plus, times } from "../../core/exact.js";
import { InvalidInput } from "../../errors.js";
import { Policy, UNIT, UNLIMITED, units } from "../../mechanisms/policy.js";
import { check, Numeric } from "./index.js";

/** A range of numbers, with both of its ends. */
type Interval = readonly [low: number, high: number];

/** A part of a range, from where the part before ends: up to a number, with the distance that tells least. */
export type Band = readonly [upto: number, within: number];

/** The most regions of a question, or parts of its resolution. */
const MOST = 16;

/**
 * A number whose protection depends on its value.
 *
 * Numbers in `sensitive` regions are protected from every number; a report may reveal the others. A `resolution`
 * protects all numbers by their distance instead: two that are `within` apart by epsilon / cap, and all by epsilon
 * at most; a `cap` of 0 stands for 1. Throws `InvalidInput` as `Numeric`, and for regions or a resolution that
 * cannot be.
 */
export class GradedNumeric extends Numeric {
  /** The ranges between the regions, which a report may reveal. */
  readonly #ordinary: readonly Interval[];
  override readonly ordinary: readonly string[];
  override readonly isAlike = false;
  override readonly isSplit: boolean = false;

  constructor(
    low: number,
    high: number,
    clamp: boolean,
    step: number,
    readonly sensitive: readonly Interval[],
    readonly resolution: readonly Band[],
    readonly cap: number,
  ) {
    super(low, high, clamp, step);
    check(
      !sensitive.length || !resolution.length,
      "give sensitive regions or a resolution, not both",
    );
    this.#checkRegions();
    this.#checkResolution();
    const ends = [low, ...sensitive.flat(), high];
    const between = sensitive.length
      ? [...sensitive, sensitive[0]!].map((_, i) => [ends[2 * i]!, ends[2 * i + 1]!] as const)
      : [];
    this.#ordinary = between.filter(([a, b]) => a < b);
    this.ordinary = this.#ordinary.map(inWords);
    check(
      !sensitive.length || this.#ordinary.length > 0,
      "all numbers are sensitive: leave that out",
    );
  }

  override notAmong(allowed: readonly string[]): readonly string[] {
    const merged: [number, number][] = [];
    for (const [a, b] of allowed.map(parsed).sort(([a], [b]) => a - b)) {
      const last = merged.at(-1);
      if (last && a <= last[1]) last[1] = Math.max(b, last[1]);
      else merged.push([a, b]);
    }
    const isCovered = ([a, b]: Interval): boolean => merged.some(([c, d]) => c <= a && b <= d);
    return this.#ordinary.filter((range) => !isCovered(range)).map(inWords);
  }

  override policy(epsilon: number, grid: number): Policy {
    if (this.sensitive.length) return this.#oneSided(units(epsilon), grid);
    return this.#onALine(epsilon, grid);
  }

  /** Protect the grid points that a number of a region may be rounded to. */
  #oneSided(limit: bigint, grid: number): Policy {
    const classes = Array.from({ length: grid + 1 }, () => 1);
    for (const [low, high] of this.sensitive) {
      const from = nearest(this.place(low), grid) >> 32n;
      const until = (nearest(this.place(high), grid) + 0xffffffffn) >> 32n;
      classes.fill(0, Number(from), Number(until) + 1);
    }
    if (!classes.includes(1)) return new Policy(classes, [[limit]]);
    return new Policy(classes, [
      [limit, limit],
      [UNLIMITED, UNLIMITED],
    ]);
  }

  /** Protect grid points by the cells between them. */
  #onALine(epsilon: number, grid: number): Policy {
    const exact = this.points?.length === grid + 1;
    const [first, last] = [fromDouble(this.low), fromDouble(this.high)];
    const step = times(minus(last, first), fraction(1n, BigInt(grid)));
    const full = over(fromDouble(epsilon), fromDouble(this.cap || 1));
    const lengths = Array.from({ length: grid }, (_, i) => {
      const begin = plus(first, times(step, fraction(BigInt(i))));
      const shared = this.#shared(begin, plus(begin, step));
      if (exact) {
        const parts = shared.map(([width, within]) => times(full, over(width, within)));
        return inUnits(parts.reduce(plus));
      }
      const largest = shared
        .map(([, within]) => within)
        .reduce((a, b) => (compare(a, b) < 0 ? b : a));
      const x = times(full, over(step, largest));
      return inUnits(over(times(fraction(2n), x), plus(fraction(2n), x)));
    });
    const limit = units(epsilon);
    const places = lengths.reduce<bigint[]>((ends, each) => [...ends, ends.at(-1)! + each], [0n]);
    const distance = (a: bigint, b: bigint): bigint => {
      const apart = a < b ? b - a : a - b;
      return apart < limit ? apart : limit;
    };
    return new Policy(
      [...places.keys()],
      places.map((a) => places.map((b) => distance(a, b))),
    );
  }

  /** Return the widths that parts of the resolution share with a cell, with their `within`. */
  #shared(begin: Fraction, end: Fraction): [width: Fraction, within: Fraction][] {
    let from = fromDouble(this.low);
    const found: [Fraction, Fraction][] = [];
    for (const [upto, within] of this.resolution) {
      const until = fromDouble(upto);
      const [low, high] = [
        compare(from, begin) < 0 ? begin : from,
        compare(until, end) < 0 ? until : end,
      ];
      if (compare(low, high) < 0) found.push([minus(high, low), fromDouble(within)]);
      from = until;
    }
    return found;
  }

  #checkRegions(): void {
    check(this.sensitive.length <= MOST, `there may be ${MOST} sensitive regions`);
    let last = -Infinity;
    for (const region of this.sensitive) {
      const [first, until] = region;
      check(
        this.low <= first && first <= until && until <= this.high,
        `a sensitive region must lie in ${inWords([this.low, this.high])}, got ${inWords(region)}`,
      );
      check(first > last, `sensitive regions must rise and not overlap, got ${inWords(region)}`);
      last = until;
    }
  }

  #checkResolution(): void {
    const { resolution, cap, low, high } = this;
    if (!resolution.length) return check(cap === 0, `cap = ${cap} needs a resolution`);
    check(resolution.length <= MOST, `a resolution has ${MOST} parts at most`);
    let begin = low;
    let apart = fraction(0n);
    for (const [upto, within] of resolution) {
      check(
        begin < upto && upto <= high,
        `the parts of a resolution must rise, got upto = ${upto}`,
      );
      check(within > 0 && within < Infinity, `within must be finite and > 0, got ${within}`);
      const width = minus(fromDouble(upto), fromDouble(begin));
      apart = plus(apart, over(width, fromDouble(within)));
      begin = upto;
    }
    check(begin === high, `the last part of a resolution must reach ${high}, got upto = ${begin}`);
    check(cap === 0 || (cap >= 1 && cap < Infinity), `cap must be finite and >= 1, got ${cap}`);
    check(
      compare(fromDouble(cap || 1), apart) <= 0,
      `a cap of ${cap || 1} is above the number of withins from end to end`,
    );
  }
}

function minus(a: Fraction, b: Fraction): Fraction {
  return plus(a, fraction(-b.n, b.d));
}

/** Return a / b, for b > 0. */
function over(a: Fraction, b: Fraction): Fraction {
  return fraction(a.n * b.d, a.d * b.n);
}

/** Return a distance in a policy's units, rounded down. */
function inUnits({ n, d }: Fraction): bigint {
  return (n * UNIT) / d;
}

/** Return the ends of a range that is written "0..800"; throw `InvalidInput` for another text. */
function parsed(text: string): Interval {
  const [, first, last] = /^(.+)\.\.(.+)$/.exec(text) ?? [];
  const [a, b] = [Number(first), Number(last)];
  if (a <= b) return [a, b];
  throw new InvalidInput(`a range of numbers is written as "0..800", got ${JSON.stringify(text)}`);
}

function inWords([low, high]: Interval): string {
  return `${inDigits(low)}..${inDigits(high)}`;
}

/** Return the shortest text of a double as Python writes it, without ".0": agreements are compared as texts. */
function inDigits(value: number): string {
  const [mantissa, exponent] = value.toExponential().split("e") as [string, string];
  const power = Number(exponent);
  if (Object.is(value, -0)) return "-0";
  if (power >= -4 && power < 16) return String(value);
  const digits = String(Math.abs(power)).padStart(2, "0");
  return `${mantissa}e${power < 0 ? "-" : "+"}${digits}`;
}
