/** The kinds of answers as a plan has them: how each is read, and which texts an operator writes in it. */

import { InvalidInput } from "../../errors.js";
import { compareBytes, FIELDS, type WireAttribute, type WireNumeric } from "../protobuf.js";
import type { Text } from "../text.js";
import { Binned } from "./bins.js";
import { Categorical } from "./category.js";
import type { Ratings, SetOf } from "./items.js";
import { Numeric } from "./number.js";
import type { Strings } from "./words.js";

export { Binned, Grid } from "./bins.js";
export { Categorical } from "./category.js";
export { check, type Encoded, Kind, type KindName } from "./kind.js";
export { checkNames, Names, spelled } from "./names.js";
export { checkRange, Numeric } from "./number.js";

const utf8 = new TextEncoder();

/** What an attribute's answers can be; a `Grid` is asked by its two numbers. */
export type Domain = Categorical | Numeric | Binned | SetOf | Ratings | Strings;

type Field = (typeof FIELDS)[number];

/** How the message of each field is read. What few surveys have is loaded where it is needed. */
const READ: {
  readonly [F in Field]: (wire: NonNullable<WireAttribute[F]>) => Domain | Promise<Domain>;
} = {
  categorical: ({ values, sensitive, classes, maps }) => {
    const byName = maps
      .map(([map, members]) => [map, members.sensitive] as const)
      .sort(([a], [b]) => compareBytes(utf8.encode(a), utf8.encode(b)));
    const members = classes.map(([, scaled]) => scaled);
    return new Categorical(values, sensitive, members, new Map(byName));
  },
  numeric: readNumeric,
  set: async ({ values, at_most, clamp }) =>
    new (await import("./items.js")).SetOf(values, at_most, clamp),
  ratings: async ({ keys, low, high, at_most, clamp }) =>
    new (await import("./items.js")).Ratings(keys, low, high, at_most, clamp),
  strings: async ({ alphabet, longest, candidates }) =>
    new (await import("./words.js")).Strings(alphabet, longest, candidates),
};

/** The texts of each field's message: texts, lists of them, or maps by them. */
const TEXTS: Readonly<Record<Field, Readonly<Record<string, Text[2]>>>> = {
  categorical: { values: "words", classes: "words", maps: "name" },
  numeric: {},
  set: { values: "words" },
  ratings: { keys: "words" },
  strings: { alphabet: "name", candidates: "words" },
};

type Listed = string | readonly [name: string, members: unknown];

/** Return the kind of an attribute's answers; throw `InvalidInput` for one that cannot be. */
export async function readKind(attribute: WireAttribute): Promise<Domain> {
  const field = FIELDS.find((name) => attribute[name]);
  if (!field)
    throw new InvalidInput("needs a domain: categorical, numeric, set, ratings or strings");
  return READ[field](attribute[field] as never);
}

/** Yield the texts of an attribute's kind, each after its place. */
export function* textsOf(attribute: WireAttribute, place: string): Generator<Text> {
  for (const field of FIELDS) {
    const wire = (attribute[field] ?? {}) as Record<string, string | Listed[]>;
    for (const [name, kind] of Object.entries(TEXTS[field])) {
      for (const entry of [wire[name] ?? []].flat())
        yield [`${place}: ${name}`, typeof entry === "string" ? entry : entry[0], kind];
    }
  }
}

async function readNumeric(wire: WireNumeric): Promise<Domain> {
  const { low, high, clamp, step, bins, sensitive, resolution, cap, edges } = wire;
  const isGraded = sensitive.length > 0 || resolution.length > 0 || cap !== 0;
  if (edges.length && (low !== 0 || high !== 0 || bins))
    throw new InvalidInput("edges are in the place of low, high and bins");
  if (bins || edges.length) {
    if (step !== 0) throw new InvalidInput("give bins or a step, not both");
    if (isGraded) throw new InvalidInput("bins are for numbers that are all protected alike");
    const [first = low, last = high] = [edges[0], edges.at(-1)];
    return new Binned(first, last, clamp, bins || edges.length - 1, edges);
  }
  if (!isGraded) return new Numeric(low, high, clamp, step);
  const regions = sensitive.map((region) => [region.low, region.high] as const);
  const bands = resolution.map(({ upto, within }) => [upto, within] as const);
  const { GradedNumeric } = await import("./graded.js");
  return new GradedNumeric(low, high, clamp, step, regions, bands, cap);
}
