/** Answers that are one of several values. Errors about an answer tell its type only. */

import type { Coins } from "../../coins.js";
import { uniform } from "../../core/draws.js";
import { InvalidInput } from "../../errors.js";
import type { Mechanism } from "../../mechanisms/mechanism.js";
import { check, Kind } from "./kind.js";
import { checkNames, Names } from "./names.js";

/** Values with a smaller epsilon. */
export interface Class {
  readonly values: readonly string[];
  readonly scale: number;
}

/** The most maps of an attribute: people at one level and map are one cohort of the estimate. */
const MOST_MAPS = 8;

/**
 * An answer that is one of `values`: at least two, all different, none empty.
 *
 * Where `sensitive` are given, the other values are ordinary: a report may reveal them. `classes` have a
 * smaller epsilon. Of `maps`, sensitive values by name, a person chooses one, which then holds as `sensitive`,
 * or none. Throws `InvalidInput` for values, sensitive ones, classes or maps that contradict each other.
 */
export class Categorical extends Kind {
  readonly name = "category";
  readonly kind = "categorical";
  readonly inputs = ["category"] as const;
  override readonly isAlike: boolean;
  override readonly isSplit = true;
  override readonly ordinary: readonly string[];
  readonly #names: Names;

  constructor(
    readonly values: readonly string[],
    readonly sensitive: readonly string[] = [],
    readonly classes: readonly Class[] = [],
    override readonly maps: ReadonlyMap<string, readonly string[]> = new Map(),
  ) {
    super(values, values.length);
    this.isAlike = !sensitive.length && !classes.length && !maps.size;
    this.#names = new Names(values);
    const listed = [...sensitive, ...classes.flatMap((some) => some.values)];
    const isWhole = listed.length === values.length;
    checkNames("values", values, 2);
    check(!sensitive.length || !classes.length, "give sensitive values or classes, not both");
    check(
      listed.every((value) => this.#names.places.has(value)),
      "what is sensitive or in a class must be one of the values",
    );
    check(new Set(listed).size === listed.length, "a value is in two classes, or twice in one");
    for (const { values: members, scale } of classes) {
      check(members.length > 0, "a class needs values");
      check(scale > 0 && scale <= 1, "the scale of a class must lie in (0, 1]");
    }
    check(
      !classes.length || !isWhole || classes.some(({ scale }) => scale === 1),
      "some values must have all of epsilon: give a class the scale 1",
    );
    const isSensitive = new Set(sensitive);
    this.ordinary = sensitive.length ? values.filter((value) => !isSensitive.has(value)) : [];
    if (maps.size) this.#checkMaps();
  }

  /** Throws `InvalidInput` where there is no such map. */
  override chosen(map: string): Categorical {
    const sensitive = map ? this.maps.get(map) : [];
    if (sensitive) return new Categorical(this.values, sensitive);
    throw new InvalidInput(
      `map must be one of ${[...this.maps.keys()].join(", ")}, got ${JSON.stringify(map)}`,
    );
  }

  override listed(): Categorical {
    return this;
  }

  override notAmong(allowed: readonly string[]): readonly string[] {
    const among = new Set(allowed);
    return this.ordinary.filter((value) => !among.has(value));
  }

  #checkMaps(): void {
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
    const category = this.#names.find(answer);
    if (category !== undefined) return category;
    throw new InvalidInput(`must be one of ${this.#names}, got another ${typeof answer}`);
  }

  anything(coins: Coins): number {
    return uniform(this.size, coins);
  }

  override checkMemo(): void {
    check(this.isAlike, "memo is for values that are all protected alike");
  }

  override async check(mechanism: Mechanism, memo: number): Promise<void> {
    await super.check(mechanism, memo);
    const { name, k, policy } = mechanism;
    check(k === this.size, `${name} does not fit ${this.size} values`);
    if (policy || this.sensitive.length || this.classes.length)
      (await import("../../mechanisms/rare.js")).checkDeclared(mechanism, this);
  }
}
