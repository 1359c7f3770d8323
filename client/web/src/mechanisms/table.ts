/** Explicit channels: any policy over a small domain, as a table of integers. */

import { cumulated, pick } from "../core/draws.js";
import { type Fraction, fraction, ONE } from "../core/exact.js";
import { checkWeights } from "./histogram.js";
import {
  type Integers,
  type Kind,
  largestOf,
  littleEndian,
  type Parts,
  widthOf,
} from "./mechanism.js";
import { Policy } from "./policy.js";
import { areIndependent } from "./rank.js";

/** The weights of the codes, by value. */
export type Rows = readonly (readonly bigint[])[];

/**
 * Report code y for category x with probability weights[m x + y] / 2^64.
 *
 * Source: Kairouz, Oh and Viswanath, "Extremal mechanisms for local differential privacy", JMLR 17, 2016.
 */
export const table: Kind = {
  fields: ["k", "weights*"],
  make: (given) => pureTable(given, 2 ** 8),
};

/** Report one of k ordered categories, the likelier the nearer it is to the true one: a table. */
export const ordered: Kind = {
  fields: ["k", "weights*"],
  make: (given) => pureTable(given, 64),
};

/**
 * Report as a table whose weights may be zero: a code may rule a value out where the policy lets it.
 *
 * Sources: Murakami and Kawamoto, "Utility-optimized local differential privacy mechanisms for distribution
 * estimation", USENIX Security 2019; Acharya et al., "Context aware local differential privacy", ICML 2020.
 */
export const policyTable: Kind = {
  fields: ["k", "weights*", "policy*"],
  make(given, epsilon) {
    const rows = readRows(given, 2 ** 8);
    for (const row of rows) {
      given.check(
        row.reduce((a, b) => a + b) === ONE && row.every((weight) => weight < ONE),
        "weights",
      );
    }
    given.check(
      rows[0]!.every((_, y) => rows.some((row) => row[y])),
      "weights",
    );
    checkRank(given, rows);
    const policy = readPolicy(given, rows.length);
    return {
      ...drawing(rows),
      policy,
      ratio: policy.check(given.name, epsilon, policy.ratios(rows)),
    };
  },
};

/** Return a mechanism's policy; throw `InvalidInput` where it is none, or not one for k values. */
export function readPolicy(given: Integers, k: number): Policy {
  const policy = Policy.fromIntegers(given.list("policy"));
  given.check(policy.k === k, "policy");
  return policy;
}

function pureTable(given: Integers, largest: number): Parts {
  const rows = readRows(given, largest);
  for (const row of rows) checkWeights(given, row);
  checkRank(given, rows);
  return { ...drawing(rows), ratio: largestOf(columnRatios(rows)) };
}

/** Return by code the largest ratio of its positive weights in two rows. */
export function columnRatios(rows: Rows): Fraction[] {
  return rows[0]!.map((_, y) => {
    const column = rows.map((row) => row[y]!);
    const [low, high] = column.reduce(
      ([l, h], weight) => [weight < l ? weight : l, weight > h ? weight : h],
      [ONE, 0n],
    );
    return fraction(high, low);
  });
}

function readRows(given: Integers, largest: number): Rows {
  const k = given.categories(largest);
  const weights = given.list("weights");
  const size = weights.length / k;
  given.check(Number.isInteger(size) && size >= k && weights.length <= 2 ** 16, "weights");
  return Array.from({ length: k }, (_, x) => weights.slice(size * x, size * (x + 1)));
}

function checkRank(given: Integers, rows: Rows): void {
  given.check(areIndependent(rows.map((row) => row.map(Number))), "weights");
}

function drawing(rows: Rows): Pick<Parts, "k" | "width" | "draw"> & { k: number } {
  const width = widthOf(rows[0]!.length);
  const limits = rows.map(cumulated);
  return {
    k: rows.length,
    width,
    draw: (value, coins) => littleEndian(pick(limits[value]!, coins), width),
  };
}
