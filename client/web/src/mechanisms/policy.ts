/** Policies: limits on how well a report may tell any two values apart, in exact integers. */

import { compare, expBelow, type Fraction, fraction, fromDouble, times } from "../core/exact.js";
import { doubleBelow } from "../core/logarithm.js";
import { InvalidInput } from "../errors.js";
import type { Mechanism } from "./mechanism.js";

/** The integer that stands for a distance of one. */
export const UNIT = 1n << 58n;

/** The integer that stands for an infinite distance: no protection. */
export const UNLIMITED = (1n << 64n) - 1n;

const MAX_DISTANCE = 32n * UNIT;

/** The most classes of a policy: closing it takes the cube of their number. */
const MAX_CLASSES = 64;

/** More than all classes: pairs of classes are written as one number. */
const BASE = 2 ** 20;

/** What a domain of categories declares about its values. */
interface Declaration {
  readonly values: readonly string[];
  readonly sensitive: readonly string[];
  readonly classes: readonly { readonly values: readonly string[]; readonly scale: number }[];
}

/** What a domain of numbers declares about them. */
interface GradedDeclaration {
  readonly resolution?: readonly unknown[];
  policy(epsilon: number, grid: number): Policy | undefined;
}

/** By pair of classes: the largest Q(y | x) / Q(y | x'); undefined where Q(y | x') can be zero. */
export type Ratios = (Fraction | undefined)[][];

/**
 * Classes of values, and limits on how well a report may tell two values apart.
 *
 * `distances[a][b]` limits what may be learnt from a value of class a against another, of class b, in units
 * of 2^-58, or `UNLIMITED`.
 * Guarantee of a channel Q that keeps a policy: Q(y | x) <= e^D[x, x'] Q(y | x') for every report y and every
 * two values x and x'. Nothing is promised about pairs at infinite distance.
 * Throws `InvalidInput` for classes without values, distances of zero or beyond 32, and where no pair of
 * values is protected.
 * Source: Chatzikokolakis et al., "Broadening the scope of differential privacy using metrics", PETS 2013.
 */
export class Policy {
  /** The values of each class, in order. */
  readonly members: readonly (readonly number[])[];
  readonly distances: readonly (readonly bigint[])[];

  constructor(
    readonly classes: readonly number[],
    distances: readonly (readonly bigint[])[],
  ) {
    const size = distances.length;
    const members: number[][] = distances.map(() => []);
    for (const [value, a] of classes.entries()) members[a]?.push(value);
    if (
      classes.length < 2 ||
      !classes.every((a) => a < size) ||
      !members.every((each) => each.length)
    ) {
      throw new InvalidInput(
        `a policy is for two values or more, whose classes are numbered 0..${size - 1}`,
      );
    }
    const rows = closed(distances, members);
    let finite = false;
    for (const [a, row] of rows.entries()) {
      for (const [b, distance] of row.entries()) {
        if (a === b && members[a]!.length === 1) row[b] = 0n;
        else if (distance > 0n && distance <= MAX_DISTANCE) finite = true;
        else if (distance !== UNLIMITED) {
          throw new InvalidInput(
            `the distance from class ${a} to ${b} must lie in (0, 32] or be infinite`,
          );
        }
      }
    }
    if (!finite)
      throw new InvalidInput("the policy protects no value from being told from any other");
    this.members = members;
    this.distances = rows;
  }

  /** Build a policy from the integers of a plan: the number of classes, each value's class, the distances. */
  static fromIntegers(integers: readonly bigint[]): Policy {
    const size = Number(integers[0] ?? 0n);
    checkSize(size);
    if (size < 1 || integers.length < 1 + size + size * size) {
      throw new InvalidInput(
        `a policy is its number of classes, every value's class and all distances, got ${size} classes`,
      );
    }
    const flat = integers.slice(-size * size);
    const rows = list(size, (a) => flat.slice(size * a, size * (a + 1)));
    return new Policy(integers.slice(1, -size * size).map(Number), rows);
  }

  /** Return the policy of epsilon-LDP: all pairs of the k values are protected alike. */
  static uniform(k: number, epsilon: number): Policy {
    return new Policy(
      list(k, () => 0),
      [[units(epsilon)]],
    );
  }

  /** Return the policy that a domain declares at `epsilon`; undefined where all pairs are protected alike. */
  static declared(
    { values, sensitive, classes }: Declaration,
    epsilon: number,
  ): Policy | undefined {
    if (sensitive.length) {
      if (sensitive.length === values.length) return Policy.uniform(values.length, epsilon);
      const protectedOnes = new Set(sensitive);
      const limit = units(epsilon);
      return new Policy(
        values.map((value) => (protectedOnes.has(value) ? 0 : 1)),
        [
          [limit, limit],
          [UNLIMITED, UNLIMITED],
        ],
      );
    }
    if (!classes.length) return undefined;
    const scaleOf = new Map(
      classes.flatMap((each) => each.values.map((value) => [value, each.scale] as const)),
    );
    const scales = values.map((value) => scaleOf.get(value) ?? 1);
    const distinct = [...new Set(scales)].sort((a, b) => a - b);
    checkSize(distinct.length);
    const limits = distinct.map((scale) =>
      units(doubleBelow(times(fromDouble(epsilon), fromDouble(scale)))),
    );
    return new Policy(
      scales.map((scale) => distinct.indexOf(scale)),
      limits.map((a) => limits.map((b) => (a < b ? a : b))),
    );
  }

  /** The number of values. */
  get k(): number {
    return this.classes.length;
  }

  /** The largest finite distance, exactly. */
  get largest(): Fraction {
    const finite = this.distances.flat().filter((distance) => distance < UNLIMITED);
    return fraction(
      finite.reduce((a, b) => (a > b ? a : b)),
      UNIT,
    );
  }

  /** Tell whether no distance between two values exceeds the one of `other`. */
  implies(other: Policy): boolean {
    if (this.k !== other.k) return false;
    // Pairs of values fall into few pairs of classes, one of each policy.
    const seen = new Map<number, number>();
    for (const [value, a] of this.classes.entries()) {
      const pair = a * BASE + other.classes[value]!;
      seen.set(pair, (seen.get(pair) ?? 0) + 1);
    }
    const split = (pair: number): [number, number] => [Math.floor(pair / BASE), pair % BASE];
    for (const [first, count] of seen) {
      for (const second of seen.keys()) {
        if (first === second && count === 1) continue;
        const [[a, c], [b, d]] = [split(first), split(second)];
        if (this.distances[a]![b]! > other.distances[c]![d]!) return false;
      }
    }
    return true;
  }

  /** Return the largest ratio between two different values of each pair of classes of a channel's rows. */
  ratios(rows: readonly (readonly bigint[])[]): Ratios {
    const worst = this.noRatios();
    for (let y = 0; y < rows[0]!.length; y++) {
      const columns = this.members.map((values) => values.map((x) => fraction(rows[x]![y]!)));
      raiseRatios(worst, columns);
    }
    return worst;
  }

  /** Return ratios of 1, to be raised. */
  noRatios(): Ratios {
    return list(this.members.length, () => list(this.members.length, () => fraction(1n)));
  }

  /**
   * Throw `InvalidInput` unless the ratios of pairs of classes keep the policy, and the policy epsilon;
   * return the largest ratio of pairs at finite distance.
   */
  check(name: string, epsilon: number, ratios: Ratios): Fraction {
    if (compare(this.largest, fromDouble(epsilon)) > 0) {
      throw new InvalidInput(
        `${name}: the policy lets values be told apart by more than the ${epsilon} it was meant for`,
      );
    }
    const limits = new Map<bigint, Fraction>();
    let worst = fraction(1n);
    for (const [a, row] of this.distances.entries()) {
      for (const [b, distance] of row.entries()) {
        if (distance === UNLIMITED || distance === 0n) continue;
        const limit = limits.get(distance) ?? expBelow(fraction(distance, UNIT));
        limits.set(distance, limit);
        const ratio = ratios[a]![b];
        if (!ratio || compare(ratio, limit) > 0) {
          throw new InvalidInput(
            `${name}: a value of class ${a} can be told from one of class ${b} by more than the policy allows`,
          );
        }
        if (compare(ratio, worst) > 0) worst = ratio;
      }
    }
    return worst;
  }
}

/** Raise ratios by one report: the probabilities, up to a common factor, of each class's values. */
export function raiseRatios(worst: Ratios, byClass: readonly (readonly Fraction[])[]): void {
  const high = byClass.map((each) => each.reduce((a, b) => (compare(a, b) > 0 ? a : b)));
  const low = byClass.map((each) => each.reduce((a, b) => (compare(a, b) < 0 ? a : b)));
  for (const [a, top] of high.entries()) {
    for (const [b, bottom] of low.entries()) worst[a]![b] = raised(worst[a]![b], top, bottom);
  }
}

/** Return the larger of a ratio and top / bottom; undefined where the bottom alone is zero. */
function raised(
  ratio: Fraction | undefined,
  top: Fraction,
  bottom: Fraction,
): Fraction | undefined {
  if (!top.n || !ratio) return ratio;
  if (!bottom.n) return undefined;
  const here = fraction(top.n * bottom.d, top.d * bottom.n);
  return compare(here, ratio) > 0 ? here : ratio;
}

/** Throw `InvalidInput` unless the mechanism protects numbers as their domain declares. */
export function checkGraded(mechanism: Mechanism, domain: GradedDeclaration): void {
  const { name, epsilon, policy } = mechanism;
  // One without a policy protects all numbers alike, which a resolution does not allow for.
  if (!policy && !domain.resolution?.length) return;
  if (policy) {
    const wanted = domain.policy(epsilon, policy.k - 1) ?? Policy.uniform(policy.k, epsilon);
    if (policy.implies(wanted)) return;
  }
  throw new InvalidInput(`${name} keeps another policy than its numbers declare`);
}

/** Throw `InvalidInput` unless the mechanism protects the values as their domain declares. */
export function checkDeclared(mechanism: Mechanism, domain: Declaration): void {
  const { name, k, epsilon, policy } = mechanism;
  let holds: boolean;
  if (policy)
    holds = policy.implies(Policy.declared(domain, epsilon) ?? Policy.uniform(k, epsilon));
  else {
    // One without a policy protects all pairs alike. That is enough for any sensitive values, and of classes the
    // best protected one decides: a server must not choose how often all values are looked at.
    if (!domain.classes.length) return;
    const scales = new Set(domain.classes.map(({ scale }) => scale));
    const listed = domain.classes.reduce((count, { values }) => count + values.length, 0);
    if (listed < domain.values.length) scales.add(1);
    checkSize(scales.size);
    const scale = [...scales].reduce((a, b) => Math.min(a, b));
    const least = doubleBelow(times(fromDouble(epsilon), fromDouble(scale)));
    holds = Policy.uniform(2, epsilon).implies(Policy.uniform(2, least));
  }
  if (!holds) throw new InvalidInput(`${name} keeps another policy than its values declare`);
}

/** Return distances replaced by the shortest paths between two different values (Floyd, 1962). */
function closed(
  distances: readonly (readonly bigint[])[],
  members: readonly (readonly number[])[],
): bigint[][] {
  const rows = distances.map((row) => [...row]);
  const least = (a: bigint, b: bigint): bigint => (a < b ? a : b);
  for (const [via, from] of rows.entries()) {
    for (const [a, row] of rows.entries()) {
      for (const b of row.keys()) {
        if (a !== b && a !== via && b !== via) row[b] = least(row[b]!, row[via]! + from[b]!);
      }
    }
  }
  for (const [a, row] of rows.entries()) {
    if (members[a]!.length < 2) continue;
    for (const [via, from] of rows.entries()) {
      if (via !== a) row[a] = least(row[a]!, row[via]! + from[a]!); // out of the class and back
    }
  }
  return rows;
}

function checkSize(classes: number): void {
  if (classes > MAX_CLASSES) {
    throw new InvalidInput(`a policy has at most ${MAX_CLASSES} classes, got ${classes}`);
  }
}

/** Return a distance in units of 2^-58, rounded down. */
export function units(distance: number): bigint {
  const { n, d } = fromDouble(distance);
  return (n * UNIT) / d;
}

/** Return what `make` gives for 0..count-1. */
function list<T>(count: number, make: (i: number) => T): T[] {
  return Array.from({ length: count }, (_, i) => make(i));
}
