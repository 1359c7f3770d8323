/** Budgets: which attributes a record reports, and what they cost together, exactly. */

import type { Coins } from "../coins.js";
import { word } from "../core/draws.js";
import { doubleAbove, type Fraction, fraction, fromDouble, ONE } from "../core/exact.js";
import { InvalidInput } from "../errors.js";

/**
 * The epsilon of each attribute's report, and the chance over 2^64 that a record reports it.
 *
 * Guarantee: a record is `recordEpsilon`-LDP as a whole, if each attribute's mechanism keeps its epsilon.
 * Throws `InvalidInput` unless the chances are in 1..2^64 and sum to a multiple of 2^64.
 * Source: systematic sampling, Madow, "On the theory of systematic sampling, II", Annals of Mathematical
 * Statistics 20, 1949.
 */
export class Budget {
  private readonly starts: readonly bigint[];
  /** The epsilons, over `over`. */
  private readonly units: readonly bigint[];
  private readonly over: bigint;

  constructor(
    readonly epsilons: readonly number[],
    readonly chances: readonly bigint[],
  ) {
    const exact = epsilons.map(fromDouble);
    this.over = exact.reduce((most, { d }) => (d > most ? d : most), 1n); // all are powers of two
    this.units = exact.map(({ n, d }) => n * (this.over / d));
    let end = 0n;
    this.starts = chances.map((chance) => {
      const start = end % ONE;
      end += chance;
      return start;
    });
    if (chances.length !== epsilons.length || end % ONE) {
      throw new InvalidInput(
        "a level has one chance for each attribute, which sum to a multiple of 2^64",
      );
    }
  }

  /** Draw the attributes that one record reports; return their indices in order. */
  draw(coins: Coins): number[] {
    const all = this.chances.every((chance) => chance === ONE);
    return this.selected(all ? 0n : word(coins));
  }

  /** Return the largest sum of epsilons that a record can report together, of some attributes or all. */
  spent(attributes: Iterable<number> = this.chances.keys()): Fraction {
    let now = 0n; // at the circle's end
    const changes = new Map<bigint, bigint>();
    const change = (place: bigint, by: bigint): void => {
      changes.set(place, (changes.get(place) ?? 0n) + by);
    };
    for (const j of attributes) {
      const [start, units] = [this.starts[j]!, this.units[j]!];
      const end = start + this.chances[j]!;
      if (end >= ONE) now += units;
      if (this.chances[j] === ONE) continue;
      change(start, units);
      change(end % ONE, -units);
    }
    let largest = now;
    for (const [, by] of [...changes].sort(([a], [b]) => (a < b ? -1 : 1))) {
      now += by;
      if (now > largest) largest = now;
    }
    return fraction(largest, this.over);
  }

  /** Return `spent` rounded up to a double. */
  recordEpsilon(attributes?: Iterable<number>): number {
    return doubleAbove(this.spent(attributes));
  }

  /** Return the budget with another epsilon for an attribute, as a level of its own. */
  withEpsilon(attribute: number, epsilon: number): Budget {
    return new Budget(
      this.epsilons.map((each, j) => (j === attribute ? epsilon : each)),
      this.chances,
    );
  }

  /** Return the attributes whose arcs on a circle of length 2^64 hold the word. */
  private selected(drawn: bigint): number[] {
    return [...this.chances.keys()].filter(
      (j) => BigInt.asUintN(64, drawn - this.starts[j]!) < this.chances[j]!,
    );
  }
}
