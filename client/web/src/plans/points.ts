/** The points that a number's answers take. */

import { InvalidInput } from "../errors.js";

/** The most points: an estimate of their shares costs the cube of how many there are. */
const MAX_POINTS = 513;

/** What part of a step a number may miss a point by and still be it: floats are inexact. */
export const NEAR = 1e-6;

/**
 * Evenly spaced numbers: low, low + step, ..., high. An answer between two counts as the lower one.
 *
 * The operations on doubles and their order are those of docs/wire-mechanisms.md, so that every client finds the same
 * point. Throws `InvalidInput` unless 1 to 512 whole steps lead from low to high.
 */
export class Points {
  /** The number of points. */
  readonly length: number;

  constructor(
    private readonly low: number,
    private readonly high: number,
    step: number,
  ) {
    if (!(Number.isFinite(step) && step > 0))
      throw new InvalidInput(`step must be finite and > 0, got ${step}`);
    const steps = (high - low) / step;
    const whole = Math.round(steps);
    if (!(steps > NEAR && Math.abs(steps - whole) <= NEAR)) {
      throw new InvalidInput(`whole steps must lead from ${low} to ${high}, got a step of ${step}`);
    }
    if (steps > MAX_POINTS - 0.5)
      throw new InvalidInput(`there may be ${MAX_POINTS} points, got ${whole + 1}`);
    this.length = whole + 1;
  }

  /** Return where a point lies on the scale [-1, 1] of the mechanisms. */
  place(index: number): number {
    return (2 * index) / (this.length - 1) - 1;
  }

  /** Return the index of the last point that is not above a finite number; the first or last outside. */
  atOrBelow(value: number): number {
    const inside = Math.min(Math.max(value, this.low), this.high);
    const position = ((inside - this.low) / (this.high - this.low)) * (this.length - 1);
    return Math.min(this.length - 1, Math.floor(position + NEAR));
  }
}
