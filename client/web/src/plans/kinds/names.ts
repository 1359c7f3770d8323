/** The names of values, of items and of what is rated. */

import { JOINERS, normal } from "../text.js";
import { check } from "./kind.js";

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

/** The places of names. */
export class Names {
  readonly places: ReadonlyMap<string, number>;

  constructor(readonly names: readonly string[]) {
    this.places = new Map(names.map((name, place) => [name, place]));
  }

  /** Return the place of a name, however it is composed, or of a number that spells one; undefined for anything else. */
  find(given: unknown): number | undefined {
    return this.places.get(spelled(given) ?? "");
  }

  toString(): string {
    return (this.names.length <= 8 ? this.names : [...this.names.slice(0, 7), "..."]).join(", ");
  }
}
