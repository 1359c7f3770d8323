/** Answers that are numbers. Errors about an answer tell its type only. */

import type { Coins } from "../../coins.js";
import { uniform, word } from "../../core/draws.js";
import { InvalidInput } from "../../errors.js";
import type { Mechanism } from "../../mechanisms/mechanism.js";
import type { Policy } from "../../mechanisms/policy.js";
import { Points } from "../points.js";
import { Kind } from "./kind.js";

/**
 * An answer that is a number in [low, high]; with `clamp`, others move to the nearer end.
 *
 * With a `step` a number counts as the last of the points low, low + step, ..., high that is not above it.
 * Throws `InvalidInput` for a range that is none, and as `Points`.
 */
export class Numeric extends Kind {
  readonly name = "number";
  readonly kind = "numeric";
  readonly inputs = ["number"] as const;
  override readonly isSplit: boolean;
  /** The points that answers take; undefined where they can be any number in the range. */
  readonly points: Points | undefined;

  constructor(
    readonly low: number,
    readonly high: number,
    readonly clamp: boolean,
    readonly step = 0,
  ) {
    super([low, high]);
    this.isSplit = !step;
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

  /** Return the policy to keep at `epsilon` on grid + 1 points; undefined where all numbers are protected alike. */
  policy(_: number, __: number): Policy | undefined {
    return undefined;
  }

  /** Return a place in [-1, 1] drawn uniformly, of the points or of 2^53 numbers. */
  anything(coins: Coins): number {
    if (this.points) return this.points.place(uniform(this.points.length, coins));
    const drawn = word(coins) & ((1n << 53n) - 1n); // modulo 2^53, which divides 2^64
    return (2 * Number(drawn)) / (2 ** 53 - 1) - 1;
  }

  override async check(mechanism: Mechanism, memo: number): Promise<void> {
    await super.check(mechanism, memo);
    if (mechanism.policy || !this.isAlike)
      (await import("../../mechanisms/rare.js")).checkGraded(mechanism, this);
  }
}

/** Throw `InvalidInput` unless low < high, both finite, and what lies between them. */
export function checkRange(low: number, high: number): void {
  if (!(low < high && Number.isFinite(high - low))) {
    throw new InvalidInput(`low and high must be finite with low < high, got ${low} and ${high}`);
  }
}

/** Return an answer as a finite double, in [low, high] unless `clamp`; throw `InvalidInput` for another. */
export function numberIn(low: number, high: number, clamp: boolean, answer: unknown): number {
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
