/** The SDK computes what protos/conformance says. The ledger's histories have a test of their own. */

import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import {
  coin,
  cumulated,
  distinct,
  pick,
  place,
  point,
  threshold,
  toss,
  uniform,
  uniformOfMany,
} from "../src/core/draws.js";
import { compare, expBelow, type Fraction, fraction, fromDouble } from "../src/core/exact.js";
import { logAbove } from "../src/core/logarithm.js";
import { InvalidInput } from "../src/errors.js";
import { build, type Mechanism, type Value } from "../src/mechanisms/index.js";
import { Policy } from "../src/mechanisms/policy.js";
import { Budget } from "../src/plans/budget.js";
import { GradedNumeric } from "../src/plans/kinds/graded.js";
import { valueOf as viewOf } from "../src/recording/randomize.js";
import { Binned } from "../src/plans/kinds/bins.js";
import { Categorical } from "../src/plans/kinds/category.js";
import { Numeric } from "../src/plans/kinds/number.js";
import { Memoizer } from "../src/plans/memo.js";
import { end, label, start } from "../src/plans/period.js";
import { Ratings, SetOf } from "../src/plans/kinds/items.js";
import { Strings } from "../src/plans/kinds/words.js";
import { checkTexts } from "../src/plans/text.js";
import { parsePlan } from "../src/plans/plan.js";
import { type Batch, decodeBatch, encodeBatch } from "../src/plans/protobuf.js";
import type { Coins } from "../src/coins.js";
import { CountedCoins, LiteralCoins, ScriptedCoins } from "./scripted.js";

// eslint-disable-next-line @typescript-eslint/no-explicit-any -- the vectors are JSON of many forms
type Case = any;

const vectors = (file: string): Case =>
  JSON.parse(readFileSync(new URL(`../../../protos/conformance/${file}`, import.meta.url), "utf8"));

const unhex = (text: string): Uint8Array => new Uint8Array(Buffer.from(text, "hex"));
const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString("hex");
const double = (text: string): number => Buffer.from(text, "hex").readDoubleBE();
const bits = (x: number): string => {
  const bytes = Buffer.alloc(8);
  bytes.writeDoubleBE(x);
  return bytes.toString("hex");
};
const ratio = ([n, d]: string[]): Fraction => fraction(BigInt(n!), BigInt(d!));
const scripted = (seed: string): CountedCoins => new CountedCoins(new ScriptedCoins(unhex(seed)));

const built = ({ name, epsilon, integers }: Case): Promise<Mechanism> =>
  build(
    name,
    double(epsilon),
    new Map(
      Object.entries(integers as Record<string, string[]>).map(([field, values]) => [
        field,
        values.map(BigInt),
      ]),
    ),
  );
/** Return a value of the vectors: doubles are hexadecimal there, and texts are their code points. */
const valueOf = (mechanism: Mechanism, value: number | string | number[]): Value => {
  if (mechanism.input === "text") return String.fromCodePoint(...(value as number[]));
  return typeof value === "string" ? double(value) : value;
};

/** Return what a check throws: its message where that is an `InvalidInput`, undefined where it throws nothing. */
async function refusal(check: () => unknown): Promise<string | undefined> {
  try {
    await check();
    return undefined;
  } catch (error) {
    if (error instanceof InvalidInput) return error.message;
    throw error;
  }
}

function draw(given: Case, coins: Coins): unknown {
  switch (given.draw) {
    case "coin":
      return coin(threshold(BigInt(given.threshold)), coins);
    case "uniform":
      return String(uniformOfMany(BigInt(given.bound), coins));
    case "pick":
      return pick(cumulated(given.weights.map(BigInt)), coins);
    case "toss":
      return hex(toss(threshold(BigInt(given.threshold)), given.count, coins));
    case "distinct":
      return [...distinct(given.count, given.size, coins)].sort((a, b) => a - b);
    case "point":
      return point(double(given.x), given.grid, coins);
    case "place":
      return place(double(given.x), given.grid, coins);
    default:
      throw new Error(given.draw);
  }
}

describe("draws", () => {
  test.each(vectors("draws.json").draws as Case[])(
    "$draw takes the bytes of its stream",
    (given) => {
      const stream = unhex(given.stream);
      const coins = new CountedCoins(new LiteralCoins(stream));
      expect(draw(given, coins)).toEqual(given.result);
      expect(coins.used).toBe(stream.length);
    },
  );

  test("uniform draws the same in doubles as in BigInts", () => {
    for (const given of vectors("draws.json").draws as Case[]) {
      if (given.draw !== "uniform" || BigInt(given.bound) > 2n ** 32n) continue;
      const coins = new CountedCoins(new LiteralCoins(unhex(given.stream)));
      expect(String(uniform(Number(given.bound), coins))).toBe(given.result);
    }
  });
});

test.each(vectors("codes.json").mechanisms as Case[])(
  "codes of $name, $width bytes wide, are those of the vectors",
  async (given) => {
    const mechanism = await built(given);
    expect([mechanism.input, mechanism.width]).toEqual([given.input, given.width]);
    for (const [value, seed, code, used] of given.codes) {
      const coins = scripted(seed);
      expect(hex(mechanism.randomize(valueOf(mechanism, value), coins))).toBe(code);
      expect(coins.used).toBe(used);
    }
  },
);

test.each(vectors("lives.json").mechanisms as Case[])(
  "memos of $name, $width bytes wide, are those of the vectors",
  async (given) => {
    const memoizer = await Memoizer.of(await built(given));
    expect(memoizer.mechanism.rounds?.deviceBytes ?? 0).toBe(given.device);
    expect(bits(memoizer.epsilon)).toBe(given.memo_epsilon);
    for (const life of given.lives) {
      const coins = scripted(life.seed);
      const device = memoizer.enroll(coins);
      expect(hex(device)).toBe(life.device);
      for (const { value: shown, key, memo, reports } of life.memos) {
        const value = valueOf(memoizer.mechanism, shown) as number | string;
        expect(String(memoizer.key(device, value))).toBe(String(key));
        const drawn = memoizer.memoize(device, value, coins);
        expect(hex(drawn)).toBe(memo);
        for (const report of reports) expect(hex(memoizer.report(drawn, coins))).toBe(report);
      }
      expect(coins.used).toBe(life.used);
    }
  },
);

test("bounds of e^x and of ln(ratio) are those of the vectors", () => {
  const { exponentials, logarithms } = vectors("bounds.json");
  for (const { x, bound } of exponentials) {
    const [digits, exponent] = bound.map(BigInt) as [bigint, bigint];
    const expected =
      exponent < 0n ? fraction(digits, 10n ** -exponent) : fraction(digits * 10n ** exponent);
    expect(compare(expBelow(ratio(x)), expected)).toBe(0);
  }
  for (const { ratio: given, epsilon } of logarithms)
    expect(bits(logAbove(ratio(given)))).toBe(epsilon);
});

test("mechanisms are accepted and refused as the vectors say", async () => {
  for (const given of vectors("checks.json").checks as Case[]) {
    const message = await refusal(() => built(given));
    expect(message === undefined, `${given.name}, ${given.note}: ${message}`).toBe(given.accepted);
  }
});

test("plans are parsed or refused as the vectors say", async () => {
  for (const given of vectors("plans.json").plans as Case[]) {
    const message = await refusal(() => parsePlan(unhex(given.plan)));
    expect(message === undefined, `${given.note}: ${message}`).toBe(given.accepted);
    if (!given.accepted) continue;
    const plan = await parsePlan(unhex(given.plan));
    expect(plan.revision).toBe(given.revision);
    const epsilons = [...plan.levels].map(([name, level]) => [
      name,
      bits(level.budget.recordEpsilon()),
    ]);
    expect(Object.fromEntries(epsilons)).toEqual(given.record_epsilon);
  }
});

test("numbers take the places and points of the vectors", async () => {
  const { domains, refused, binned, refused_bins, graded } = vectors("numbers.json");
  const domainOf = ({ low, high, clamp, step }: Case): Numeric =>
    new Numeric(double(low), double(high), clamp, double(step));
  for (const given of domains) {
    const domain = domainOf(given);
    expect(domain.points?.length ?? 0).toBe(given.points);
    for (const [answer, place, seed, at] of given.answers) {
      if (place === null) {
        expect(await refusal(() => domain.encode(double(answer)))).toBeDefined();
        continue;
      }
      const found = domain.encode(double(answer));
      expect(bits(found)).toBe(place);
      expect(point(found, given.grid, scripted(seed))).toBe(at);
    }
    for (const [seed, place, used] of given.anything) {
      const coins = scripted(seed);
      expect(bits(domain.anything(coins))).toBe(place);
      expect(coins.used).toBe(used);
    }
  }
  for (const given of refused) expect(await refusal(() => domainOf(given))).toBeDefined();
  const binsOf = ({ low, high, clamp, bins, edges }: Case): Binned =>
    new Binned(double(low), double(high), clamp, bins, edges.map(double));
  for (const given of binned) {
    const domain = binsOf(given);
    for (const [answer, bin] of given.answers) {
      if (bin === null) expect(await refusal(() => domain.encode(double(answer)))).toBeDefined();
      else expect(domain.encode(double(answer))).toBe(bin);
    }
    for (const [seed, bin, used] of given.anything) {
      const coins = scripted(seed);
      expect(domain.anything(coins)).toBe(bin);
      expect(coins.used).toBe(used);
    }
  }
  for (const given of graded) {
    const pairs = (each: string[][]) => each.map(([a, b]) => [double(a!), double(b!)] as const);
    const { sensitive, resolution } = given;
    const domain = new GradedNumeric(
      double(given.low),
      double(given.high),
      given.clamp,
      double(given.step),
      pairs(sensitive),
      pairs(resolution),
      double(given.cap),
    );
    const ordinary = domain.ordinary.map((range) => range.split("..").map(Number));
    expect(ordinary).toEqual(pairs(given.ordinary));
    expect(domain.notAmong(domain.ordinary)).toEqual([]);
    const { classes, distances } = domain.policy(double(given.epsilon), given.grid);
    const declared = Policy.fromIntegers(given.policy.map(BigInt));
    expect([classes, distances]).toEqual([declared.classes, declared.distances]);
  }
  for (const given of refused_bins) expect(await refusal(() => binsOf(given))).toBeDefined();
});

test("a word draws the attributes of the vectors", () => {
  for (const { chances, draws } of vectors("arcs.json").levels as Case[]) {
    const exact = chances.map((chance: string) => BigInt(chance) || 1n << 64n);
    const budget = new Budget(
      exact.map(() => 1),
      exact,
    );
    for (const [word, drawn] of draws) {
      const stream = new DataView(new ArrayBuffer(8));
      stream.setBigUint64(0, BigInt(word), true);
      expect(budget.draw(new LiteralCoins(new Uint8Array(stream.buffer)))).toEqual(drawn);
    }
  }
});

test("sets and ratings are settled as the vectors say", async () => {
  const { sets, ratings } = vectors("sets.json");
  const names = (count: number): string[] => Array.from({ length: count }, (_, i) => `v${i}`);
  const compareDrawn = (domain: SetOf | Ratings, given: Case): void => {
    for (const [seed, items, used] of given.anything) {
      const coins = scripted(seed);
      expect(domain.settled(domain.anything(coins), coins)).toEqual(items);
      expect(coins.used).toBe(used);
    }
  };
  for (const given of sets) {
    const domain = new SetOf(names(given.values), given.at_most, given.clamp);
    for (const [answer, items, seed, used] of given.answers) {
      const spelled = answer.map((place: number) => `v${place}`);
      if (items === null) {
        expect(await refusal(() => domain.encode(spelled))).toBeDefined();
        continue;
      }
      const coins = scripted(seed);
      expect(domain.settled(domain.encode(spelled), coins)).toEqual(items);
      expect(coins.used).toBe(used);
    }
    compareDrawn(domain, given);
  }
  for (const given of ratings) {
    const { keys, at_most: most, clamp } = given;
    const domain = new Ratings(names(keys), double(given.low), double(given.high), most, clamp);
    for (const [answer, shares, items, seed, used] of given.answers) {
      const rated = new Map(
        answer.map(([place, x]: [number, string]) => [`v${place}`, double(x)] as const),
      );
      if (items === null) {
        expect(await refusal(() => domain.encode(rated))).toBeDefined();
        continue;
      }
      const encoded = domain.encode(rated);
      expect(encoded.map(([key, share]) => [key, `${share}`])).toEqual(shares);
      const coins = scripted(seed);
      expect(domain.settled(encoded, coins)).toEqual(items);
      expect(coins.used).toBe(used);
    }
    compareDrawn(domain, given);
  }
});

test("words are read as the vectors say", async () => {
  const { words, refused } = vectors("words.json");
  for (const given of words) {
    const domain = new Strings(given.alphabet, given.longest, []);
    for (const [points, word, places] of given.answers) {
      const answer = String.fromCodePoint(...points);
      if (word === null) {
        expect(await refusal(() => domain.encode(answer))).toBeDefined();
        continue;
      }
      expect(domain.encode(answer)).toBe(word);
      expect(domain.settled(word)).toEqual(places);
    }
    for (const [seed, word, used] of given.anything) {
      const coins = scripted(seed);
      expect(domain.anything(coins)).toBe(word);
      expect(coins.used).toBe(used);
    }
  }
  for (const { alphabet, longest, candidates } of refused)
    expect(await refusal(() => new Strings(alphabet, longest, candidates))).toBeDefined();
});

test("texts are taken and answers found as the vectors say", async () => {
  const { texts, answers, alike } = vectors("texts.json");
  const text = (points: number[]): string => String.fromCodePoint(...points);
  for (const [points, accepted] of texts) {
    const found = await refusal(() => checkTexts([["title", text(points), "words"]]));
    expect(found === undefined, `${points}: ${found}`).toBe(accepted);
  }
  for (const given of answers) {
    const domain = new Categorical(given.values.map(text));
    for (const [shown, place] of given.answers) {
      const answer = typeof shown === "string" ? double(shown) : text(shown);
      if (place !== null) expect(domain.encode(answer)).toBe(place);
      else expect(await refusal(() => domain.encode(answer))).toBeDefined();
    }
  }
  for (const values of alike)
    expect(await refusal(() => new Categorical(values.map(text)))).toBeDefined();
});

test("views take the categories of the vectors", () => {
  for (const { sizes, answers } of vectors("views.json").views as Case[]) {
    const names = (sizes as number[]).map((_, i) => `attribute ${i}`);
    const attributes = new Map(
      names.map((name, i) => [
        name,
        { domain: new Categorical(Array.from({ length: sizes[i] }, (_, v) => `v${v}`)) },
      ]),
    );
    for (const [categories, seed, category, used] of answers) {
      const given = new Map(names.map((name, i) => [name, categories[i] ?? undefined]));
      const coins = scripted(seed);
      expect(viewOf(names, given, attributes, coins)).toBe(category);
      expect(coins.used).toBe(used);
    }
  }
});

test("periods have the names, starts and ends of the vectors", async () => {
  const { instants, periods, refused } = vectors("periods.json");
  for (const [unit, at, name] of instants) expect(label(unit, at)).toBe(name);
  for (const [unit, name, first, last] of periods) {
    expect([start(unit, name), end(unit, name)]).toEqual([first ?? -Infinity, last ?? Infinity]);
  }
  for (const [unit, name] of refused)
    expect(await refusal(() => start(unit, name)), `${unit} ${name}`).toBeDefined();
});

test("batches are read and written in the bytes of the vectors", () => {
  for (const given of vectors("batches.json").batches as Case[]) {
    const batch = decodeBatch(unhex(given.bytes));
    expect(hex(encodeBatch(batch))).toBe(given.bytes);
    expect([batch.survey, hex(batch.revision), batch.period, hex(batch.id)]).toEqual([
      given.survey,
      given.revision,
      given.period,
      given.id,
    ]);
    expect([batch.panel, batch.properties]).toEqual([given.panel ?? 0, given.properties ?? []]);
    expect(rowsOf(batch)).toEqual(given.rows.map(sorted));
  }
});

const sorted = (row: Case[]): Case[] =>
  [...row].sort((a, b) => (a.attribute < b.attribute ? -1 : 1));

/** Return the reports of each row of a batch, sorted by attribute. */
function rowsOf({ rows, columns }: Batch): Case[][] {
  const found: Case[][] = Array.from({ length: rows }, () => []);
  for (const { attribute, level, codes, present, map } of columns) {
    const here = [...found.keys()].filter(
      (r) => !present.length || (present[r >> 3]! >> (r & 7)) & 1,
    );
    const width = codes.length / here.length;
    here.forEach((r, i) =>
      found[r]!.push({
        attribute,
        level,
        code: hex(codes.subarray(i * width, (i + 1) * width)),
        ...(map && { map }),
      }),
    );
  }
  return found.map(sorted);
}

test("a double is its fraction in every vector", () => {
  for (const { epsilon } of vectors("codes.json").mechanisms as Case[]) {
    const { n, d } = fromDouble(double(epsilon));
    expect(Number(n) / Number(d)).toBe(double(epsilon));
  }
});
