/** Answers of which only the bin is collected: of a number, or of two. Errors about an answer tell its type only. */

import type { Coins } from "../../coins.js";
import { uniform } from "../../core/draws.js";
import type { Mechanism } from "../../mechanisms/mechanism.js";
import { NEAR } from "../points.js";
import { Categorical } from "./category.js";
import { check, Kind } from "./kind.js";
import { checkRange, numberIn } from "./number.js";

/** The most bins of a number, or rectangles of two. */
const MOST_BINS = 256;

abstract class InBins extends Kind {
  readonly inputs = ["category"] as const;

  constructor(
    override readonly sides: readonly number[],
    labels: readonly number[],
  ) {
    super(
      labels,
      sides.reduce((product, side) => product * side),
    );
  }

  anything(coins: Coins): number {
    return uniform(this.size, coins);
  }

  override async check(mechanism: Mechanism, memo: number): Promise<void> {
    await super.check(mechanism, memo);
    const { name, integers } = mechanism;
    const isSame = `${integers.get("sides")!}` === `${this.sides}`;
    check(isSame, `${name} does not fit ${this.sides.join(" x ")} bins`);
  }
}

/**
 * An answer that is a number in [low, high], of which only its bin is collected: one of 2 to 256, each with
 * its left end, and of equal width unless they have `edges`. With `clamp`, others move to the nearer end.
 *
 * Throws `InvalidInput` for a range that is none, and where doubles do not tell the ends of the bins apart.
 */
export class Binned extends InBins {
  readonly name = "bins";
  readonly kind = "binned";

  constructor(
    readonly low: number,
    readonly high: number,
    readonly clamp: boolean,
    readonly count: number,
    readonly edges: readonly number[] = [],
  ) {
    super([count], edges.length ? edges : [low, high]);
    checkRange(low, high);
    check(count >= 2 && count <= MOST_BINS, `bins must lie in 2..${MOST_BINS}, got ${count}`);
    let last = -Infinity;
    for (let i = 0; i <= count; i++) {
      const end = edges[i] ?? (i === count ? high : low + (i / count) * (high - low));
      check(end > last, `doubles do not tell the ends of ${count} bins apart: take fewer bins`);
      last = end;
    }
  }

  override listed(): Categorical {
    return new Categorical(Array.from({ length: this.count }, (_, bin) => `${bin}`)); // nobody reads these
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
}

/**
 * Two numbers in bins, asked together: rectangle columns r + c has bin r of the first number and bin c of the
 * second. Throws `InvalidInput` where there are more than 256.
 */
export class Grid extends InBins {
  readonly name = "grid";
  readonly kind = "grid";

  constructor(rows: number, columns: number) {
    super([rows, columns], []);
    const { size } = this;
    check(size <= MOST_BINS, `two numbers have at most ${MOST_BINS} rectangles, got ${size}`);
  }
}
