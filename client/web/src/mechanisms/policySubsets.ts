/** Random subsets under a policy: a report's type fixes the number of categories of each class. */

import { cumulated, distinct, pick } from "../core/draws.js";
import { type Fraction, fraction, ONE } from "../core/exact.js";
import type { Integers, Kind } from "./mechanism.js";
import { type Policy, raiseRatios, type Ratios } from "./policy.js";
import { areIndependent } from "./rank.js";
import { readPolicy } from "./table.js";
import { rowBytes, setBit } from "./unary.js";

/** The sizes and weights of the types, by class; see docs/wire-mechanisms.md. */
interface Types {
  readonly count: number;
  /** The number of categories of class a in a subset of type t. */
  size(t: number, a: number): number;
  /** By class: the weights of each type with the own category in the subset, then of each without it. */
  readonly rows: readonly (readonly bigint[])[];
}

/**
 * Draw a type, then a uniform subset with the type's number of categories of each class.
 *
 * Source: Ye and Barg, IEEE Trans. Information Theory 64(8), 2018, for one class; mixtures of such designs over
 * classes are those of context-aware and utility-optimised LDP (Acharya et al., ICML 2020; Murakami and
 * Kawamoto, USENIX Security 2019).
 */
export const policySubsets: Kind = {
  fields: ["k", "sizes*", "weights*", "policy*"],
  make(given, epsilon) {
    const k = given.categories(2 ** 16);
    const policy = readPolicy(given, k);
    const { members, classes } = policy;
    const types = readTypes(given, members);
    const ratio = policy.check(given.name, epsilon, ratiosOf(types, policy));
    const events = types.rows.map(cumulated);
    const places = new Map(
      members.flatMap((values) => values.map((value, place) => [value, place] as const)),
    );
    return {
      k,
      width: 1 + rowBytes(k),
      policy,
      ratio,
      draw(value, coins) {
        const own = classes[value]!;
        const event = pick(events[own]!, coins);
        const type = event % types.count;
        const inside = event < types.count;
        const code = new Uint8Array(1 + rowBytes(k));
        const bits = code.subarray(1);
        code[0] = type;
        for (const [a, values] of members.entries()) {
          const isOwn = a === own;
          const place = places.get(value)!;
          const size = types.size(type, a) - Number(isOwn && inside);
          if (!size) continue;
          for (const other of distinct(values.length - Number(isOwn), size, coins)) {
            setBit(bits, values[other + Number(isOwn && other >= place)]!, true);
          }
        }
        if (inside) setBit(bits, value, true);
        return code;
      },
    };
  },
};

function readTypes(given: Integers, members: Policy["members"]): Types {
  const [sizes, weights] = [given.list("sizes"), given.list("weights")];
  const many = members.length;
  const count = sizes.length / many;
  given.check(
    Number.isInteger(count) && count >= 1 && count <= 255 && weights.length === 2 * count * many,
    "sizes, weights",
  );
  const rows = members.map((_, a) => weights.slice(2 * count * a, 2 * count * (a + 1)));
  const sizeOf = (t: number, a: number): bigint => sizes[many * t + a]!;
  for (const [a, values] of members.entries()) {
    const row = rows[a]!;
    given.check(
      row.reduce((x, y) => x + y) === ONE && row.every((weight) => weight < ONE),
      "weights",
    );
    for (let t = 0; t < count; t++) {
      const size = sizeOf(t, a);
      given.check(size <= values.length, "sizes");
      given.check(
        !(row[t] && size === 0n) && !(row[count + t] && size === BigInt(values.length)),
        "sizes, weights",
      );
    }
  }
  for (let t = 0; t < count; t++) {
    given.check(
      rows.some((row) => row[t] || row[count + t]),
      "weights",
    );
  }
  const types: Types = { count, size: (t, a) => Number(sizeOf(t, a)), rows };
  given.check(areDistinct(types, members), "weights");
  return types;
}

/** Return the chances of one subset of a type for a category of class a in it and outside, where there are such. */
function levels(
  { count, size, rows }: Types,
  members: Policy["members"],
  a: number,
  t: number,
): Fraction[] {
  const row = rows[a]!;
  const [own, all] = [BigInt(size(t, a)), BigInt(members[a]!.length)];
  const found: Fraction[] = [];
  if (own) found.push(fraction(row[t]! * all, own));
  if (own < all) found.push(fraction(row[count + t]! * all, all - own));
  return found;
}

function ratiosOf(types: Types, policy: Policy): Ratios {
  const { members } = policy;
  const worst = policy.noRatios();
  for (let t = 0; t < types.count; t++) {
    raiseRatios(
      worst,
      members.map((_, a) => levels(types, members, a, t)),
    );
  }
  return worst;
}

/**
 * Return whether the types tell all categories apart, as far as doubles tell.
 *
 * The same operations as in Python's `SubsetMoments`: within a class the step between the chances in and
 * outside a subset, between classes the rank of the information about their totals.
 */
function areDistinct({ count, size, rows }: Types, members: Policy["members"]): boolean {
  const chances = rows.map((row) => row.map((weight) => Number(weight) / 2 ** 64));
  const total = members.reduce((sum, values) => sum + values.length, 0);
  const each = Array.from({ length: count }, (_, t) => t);
  const chance = (a: number, t: number): number => chances[a]![t]! + chances[a]![count + t]!;
  const output = each.map(
    (t) => members.reduce((sum, values, a) => sum + values.length * chance(a, t), 0) / total,
  );
  const tells = members.every((values, a) => {
    const n = values.length;
    const within = each.map((t) => {
      const w = size(t, a);
      if (w === 0 || w === n) return 0;
      const step = (chances[a]![t]! * n) / w - (chances[a]![count + t]! * n) / (n - w);
      return (step ** 2 * w * (n - w)) / (n * Math.max(n - 1, 1) * output[t]!);
    });
    return n < 2 || within.reduce((a, b) => a + b) > 0;
  });
  const between = members.map((_, a) =>
    members.map((_, b) =>
      each.reduce((sum, t) => sum + (chance(a, t) / output[t]!) * chance(b, t), 0),
    ),
  );
  return tells && areIndependent(between);
}
