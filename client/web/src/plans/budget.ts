/** Budgets: which attributes a record reports, and what they cost together, exactly. */

import type { Coins } from "../coins.js";
import { word } from "../core/draws.js";
import { compare, doubleAbove, type Fraction, fraction, ONE, sum } from "../core/exact.js";
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

  constructor(
    readonly epsilons: readonly number[],
    readonly chances: readonly bigint[],
  ) {
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
  spent(attributes?: ReadonlySet<number>): Fraction {
    let largest = fraction(0n);
    for (const start of new Set(this.starts)) {
      const reported = this.selected(start).filter((j) => !attributes || attributes.has(j));
      const together = sum(reported.map((j) => this.epsilons[j]!));
      if (compare(together, largest) > 0) largest = together;
    }
    return largest;
  }

  /** Return `spent` rounded up to a double. */
  recordEpsilon(attributes?: ReadonlySet<number>): number {
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
