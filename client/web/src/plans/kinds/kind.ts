/** What is true of answers of every kind. */

import type { Coins } from "../../coins.js";
import { InvalidInput } from "../../errors.js";
import type { Mechanism, Value } from "../../mechanisms/mechanism.js";
import type { Categorical } from "./category.js";
import type { Rating } from "./items.js";

/** The kinds' names, which Python's `hearsay.plans.kinds` has, too. */
export type KindName = "category" | "number" | "bins" | "set" | "ratings" | "words" | "grid";

/** An answer as its kind encodes it, a word as itself; `settled` makes a mechanism's value of it. */
export type Encoded = Value | readonly Rating[];

/**
 * What the answers to a question can be, and how mechanisms take them.
 *
 * What is said here holds of most kinds; the others say it anew.
 */
export abstract class Kind {
  abstract readonly name: KindName;
  /** What errors call its answers. */
  abstract readonly kind: string;
  /** What mechanisms of its answers randomise. */
  abstract readonly inputs: readonly Mechanism["input"][];
  /** The number of bins of each number that is asked. */
  readonly sides: readonly number[] = [];
  /** By name the sensitive values of each map that a person may choose. */
  readonly maps: ReadonlyMap<string, readonly string[]> = new Map();
  /** Whether all answers are protected alike. */
  readonly isAlike: boolean = true;
  /** Whether a record that is split between two servers can have an answer of this kind. */
  readonly isSplit: boolean = false;
  /** The values, or ranges of numbers, that a report may reveal. */
  readonly ordinary: readonly string[] = [];

  /** `labels` are what an agreement lists: values or keys, or the ends of a range or of bins. `size` is the number of
   * categories, 0 where answers are none. */
  constructor(
    readonly labels: readonly string[] | readonly number[],
    readonly size = 0,
  ) {}

  /** Return what a report may reveal and is not allowed; throw `InvalidInput` for ranges that are none. */
  notAmong(_allowed: readonly string[]): readonly string[] {
    return [];
  }

  /** Return the kind as those have it who chose a map; "" stands for none. */
  chosen(_map: string): Kind {
    return this;
  }

  /** Return the categories as a list of values, for a view; undefined where there are none. */
  listed(): Categorical | undefined {
    return undefined;
  }

  /** Return a value drawn uniformly, as `encode` does: it takes the place of an answer that must not be reported. */
  abstract anything(coins: Coins): Encoded;

  /** Return an encoded answer as a mechanism takes it; of sets and ratings by draws. */
  settled(encoded: Encoded, _coins: Coins): Value {
    return encoded as Value;
  }

  /** Throw `InvalidInput` where answers can have no memo. */
  checkMemo(): void {
    throw new InvalidInput("memo is for categorical answers and strings only");
  }

  /** Throw `InvalidInput` unless a mechanism is for these answers, with this memo, and protects them. */
  async check({ name, input }: Mechanism, _memo: number): Promise<void> {
    const isOfBins = name === "waves";
    const isFor = this.inputs.includes(input) && isOfBins === this.sides.length > 0;
    check(isFor, `${name} does not fit ${this.kind} answers`);
  }
}

/** Throw `InvalidInput` with this reason unless it holds. */
export function check(holds: boolean, reason: string): void {
  if (!holds) throw new InvalidInput(reason);
}
