/** Answers that are sets of items, or ratings. */

import { runInNewContext } from "node:vm";

import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import type { Agreement } from "../src/index.js";
import { parsePlan } from "../src/plans/plan.js";
import type { WireAttribute } from "../src/plans/protobuf.js";
import { Ratings, SetOf } from "../src/plans/kinds/items.js";
import { Collector, krr, planOf, readyOf, revisionOf, setBits, setSelection } from "./kit.js";
import { ScriptedCoins } from "./scripted.js";

const PAPERS = ["news", "sport", "comics", "7"];
const base = { title: "", mechanism: "", memo: 0 };

const reads = (more: object = {}): WireAttribute => ({
  ...base,
  name: "reads",
  set: { values: PAPERS, at_most: 2, clamp: false, ...more },
});

const rates = (more: object = {}): WireAttribute => ({
  ...base,
  name: "rates",
  ratings: { keys: ["bus", "train"], low: 1, high: 5, at_most: 0, clamp: false, ...more },
});

const draft = {
  attributes: [reads(), rates()],
  levels: { only: 24 },
  mechanisms: () => [setSelection(4, 2, 12), setSelection(4, 2, 12)],
};

const coins = (): ScriptedCoins => new ScriptedCoins(new Uint8Array([1, 2, 3]));

beforeEach(() => {
  vi.spyOn(console, "warn").mockImplementation(() => {});
  vi.spyOn(console, "error").mockImplementation(() => {});
});

afterEach(() => {
  vi.restoreAllMocks();
});

describe("a set", () => {
  const set = new SetOf(PAPERS, 2, false);

  test.each<[string, unknown, number[]]>([
    ["none", [], []],
    ["a list in any order", ["comics", "news"], [0, 2]],
    ["a Set", new Set(["sport"]), [1]],
    ["an item twice", ["sport", "sport", "news"], [0, 1]],
    ["an integer that spells an item", [7, 7n], [3]],
  ])("of %s is taken", (_, answer, places) => {
    expect(set.encode(answer)).toEqual(places);
  });

  test.each<[string, unknown]>([
    ["a text", "news"],
    ["an object", { news: true }],
    ["a Map", new Map([["news", 1]])],
    ["another item", ["secret"]],
    ["an item of another type", [null]],
    ["more items than count", ["news", "sport", "comics"]],
  ])("that is given as %s is refused without its items", (_, answer) => {
    expect(() => set.encode(answer)).toThrow(/^must (be|have) /);
    expect(() => set.encode(answer)).not.toThrow(/secret/);
  });

  test("of more items than count is cut down by chance where it may be", () => {
    const clamping = new SetOf(PAPERS, 2, true);
    const all = clamping.encode(PAPERS);
    expect(all).toEqual([0, 1, 2, 3]);
    const stream = coins();
    const seen = new Set<string>();
    for (let i = 0; i < 200; i++) {
      const kept = clamping.settled(all, stream) as number[];
      expect(kept.length).toBe(2);
      expect(kept[0]!).toBeLessThan(kept[1]!);
      seen.add(kept.join());
    }
    expect(seen.size).toBe(6);
    expect(clamping.settled([1, 3], stream)).toEqual([1, 3]);
  });

  test("drawn at random has every size", () => {
    const stream = coins();
    const sizes = [0, 0, 0];
    for (let i = 0; i < 3000; i++)
      sizes[(set.settled(set.anything(stream), stream) as number[]).length]! += 1;
    // 1000 each; 4 standard deviations are 103
    for (const size of sizes) expect(Math.abs(size - 1000)).toBeLessThan(103);
  });
});

describe("ratings", () => {
  const ratings = new Ratings(["bus", "train", "bike"], 1, 5, 2, false);

  test("are shares of the scale, exactly", () => {
    const all = 2n ** 64n;
    expect(ratings.encode({ train: 5, bus: 1 })).toEqual([
      [0, 0n],
      [1, all],
    ]);
    expect(ratings.encode(new Map([["bike", 2]]))).toEqual([[2, all / 4n]]);
    // A third of 2^64, from a double that is a little less than a third.
    expect(new Ratings(["a"], 0, 1, 0, false).encode({ a: 1 / 3 })).toEqual([
      [0, 6148914691236516864n],
    ]);
    expect(ratings.encode({})).toEqual([]);
    expect(ratings.encode(Object.assign(Object.create(null), { bus: 1 }))).toEqual([[0, 0n]]);
    expect(ratings.encode(runInNewContext("({ bus: 1 })"))).toEqual([[0, 0n]]);
  });

  test.each<[string, unknown]>([
    ["a list", ["bus"]],
    ["a text", "bus"],
    ["a number", 3],
    ["a promise", Promise.resolve({ bus: 3 })],
    ["a date", new Date(0)],
    ["a number in an object", new Number(3)],
    ["an object of a class", new (class {})()],
    ["another key", { plane: 3 }],
    ["a rating outside the scale", { bus: 5.5 }],
    ["a rating that is no number", { bus: "4" }],
    ["nan", { bus: NaN }],
    ["more ratings than count", { bus: 1, train: 1, bike: 1 }],
    [
      "a key twice",
      new Map<unknown, number>([
        ["bus", 1],
        ["bus ", 2],
      ]),
    ],
  ])("that are given as %s are refused without them", (_, answer) => {
    expect(() => ratings.encode(answer)).toThrow(/^must /);
    expect(() => ratings.encode(answer)).not.toThrow(/plane|5\.5/);
  });

  test("count as + so often that their mean is the rating", () => {
    const stream = coins();
    const given = ratings.encode({ bus: 4, bike: 1 });
    let plus = 0;
    for (let i = 0; i < 4000; i++) {
      const [bus, bike] = ratings.settled(given, stream) as number[];
      expect(bike).toBe(5); // the scale's end is always "-"
      plus += Number(bus === 0);
    }
    expect(Math.abs(plus / 4000 - 0.75)).toBeLessThan(0.028); // 4 standard errors
  });
});

test("sets and ratings are recorded, and their reports are of members", async () => {
  const server = await Collector.start(planOf(draft));
  const client = await readyOf(server.url, { epsilon: 24 });
  const reading = ["sport", "news"];
  const recording = client.record({ reads: reading, rates: { bus: 5, train: 1 } });
  reading.push("comics", "7"); // the answer is what it was when it was given
  expect(await recording).toEqual({ taken: ["reads", "rates"], dropped: {}, invalid: [] });
  const { columns } = (await client.outbox()).reports[0]!;
  const codes = Object.fromEntries(
    columns.map(({ attribute, codes: [code] }) => [attribute, code!]),
  );
  expect([0, 1]).toContain(codes["reads"]); // others have less than 10^-5 of the chance
  expect([0, 3]).toContain(codes["rates"]); // bus +, train -
});

test.each<[string, unknown]>([
  ["an item that is not in it", ["cookery"]],
  ["too many items", PAPERS],
  ["no list", 3],
  [
    "a list that cannot be read",
    {
      get length(): number {
        throw new Error("secret");
      },
    },
  ],
])("a set with %s is replaced, and is counted as invalid", async (_, answer) => {
  const server = await Collector.start(planOf(draft));
  const client = await readyOf(server.url, { epsilon: 24 });
  const { taken, invalid } = await client.record({ reads: answer, rates: { bus: 9 } });
  expect([taken, invalid]).toEqual([
    ["reads", "rates"],
    ["reads", "rates"],
  ]);
  const strict = await readyOf(server.url, { epsilon: 24, strict: true });
  await expect(strict.record({ reads: answer })).rejects.toThrow(/^reads /);
});

test("an agreement lists the items of a set and the keys of ratings", async () => {
  const plan = planOf(draft);
  const agreement: Agreement = {
    survey: "daily",
    revision: revisionOf(plan),
    period: "P1D",
    domains: { reads: PAPERS, rates: ["bus", "train"] },
    levels: { only: 24 },
    defaultLevel: "only",
    plan: Buffer.from(plan).toString("base64"),
  };
  const server = await Collector.start(plan);
  const client = await readyOf(server.url, { agreement });
  expect((await client.record({ reads: [] })).taken).toEqual(["reads"]);
});

const one = (attribute: WireAttribute, mechanism = setSelection(4, 2, 1)) => ({
  attributes: [attribute],
  levels: { only: 1 },
  mechanisms: () => [mechanism],
});

test.each<[string, Parameters<typeof planOf>[0], RegExp | undefined]>([
  ["a set of at most two", one(reads()), undefined],
  ["one bit of a set", one(reads(), setBits(4, 1)), undefined],
  ["a set of one item", one(reads({ values: ["a"], at_most: 0 })), /at least two/],
  ["a set of more than there are", one(reads({ at_most: 5 })), /at_most must lie in 1..4/],
  ["an item without characters", one(reads({ values: ["a", ""] })), /empty/],
  ["an item twice", one(reads({ values: ["a", "b", "a"] })), /differ/],
  [
    "an item that is not seen",
    one(reads({ values: ["a", "b\u200b", "c", "d"] })),
    /values: .*U\+200B/,
  ],
  ["sets of another size", one(reads({ at_most: 3 })), /does not fit set answers of at most 3/],
  ["sets of other items", one(reads(), setSelection(5, 2, 1)), /does not fit set answers/],
  ["a mechanism of categories", one(reads(), krr(4, 1)), /krr does not fit set answers/],
  ["ratings", one(rates()), undefined],
  ["ratings of nothing", one(rates({ keys: [] })), /at least one/],
  ["ratings on no scale", one(rates({ low: 5 })), /low < high/],
  ["ratings by one bit", one(rates(), setBits(4, 1)), /set_bits does not fit ratings/],
  ["a memo of a set", one({ ...reads(), memo: 1 }), /memo is for categorical/],
  ["two domains", one({ ...reads(), ratings: rates().ratings! }), /two domains/],
])("a plan with %s is read or refused", async (_, change, reason) => {
  const reading = parsePlan(planOf(change));
  if (reason) await expect(reading).rejects.toThrow(reason);
  else await reading;
});
