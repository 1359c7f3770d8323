/** Views: attributes that are asked together, as one question. */

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { Agreement, ClientOptions } from "../src/index.js";
import { parsePlan } from "../src/plans/plan.js";
import type { WireAttribute } from "../src/plans/protobuf.js";
import {
  categorical,
  clientOf,
  Clock,
  Collector,
  DAY,
  krr,
  numeric,
  planOf,
  readyOf,
  revisionOf,
} from "./kit.js";

const ATTRIBUTES: WireAttribute[] = [
  categorical("smokes", ["no", "yes"]),
  categorical("sleeps", ["well", "so so", "badly"]),
  categorical("sex", ["f", "m"]),
  categorical("mood", ["good", "bad"]),
];

/** smokes and sleeps, sleeps and sex: each in half of all records; mood in all. */
const draft = {
  attributes: ATTRIBUTES,
  views: [
    ["smokes", "sleeps"],
    ["sleeps", "sex"],
  ],
  levels: { strict: 1, loose: 20 },
  chances: [0n, 2n ** 63n, 2n ** 63n],
  mechanisms: (_: string, epsilon: number) =>
    [2, 6, 6].map((k) => krr(k, epsilon === 20 ? 10 : 0.5)),
};
const PLAN = planOf(draft);

beforeEach(() => {
  vi.spyOn(console, "warn").mockImplementation(() => {});
  vi.spyOn(console, "error").mockImplementation(() => {});
});

afterEach(() => {
  vi.restoreAllMocks();
});

const ANSWERS = { smokes: "yes", sleeps: "so so", sex: "m", mood: "bad" };

test("questions are the attributes in no view, then the views", async () => {
  const plan = await parsePlan(PLAN);
  expect([...plan.questions].map(([name, { parts }]) => [name, parts])).toEqual([
    ["mood", ["mood"]],
    ["smokes+sleeps", ["smokes", "sleeps"]],
    ["sleeps+sex", ["sleeps", "sex"]],
  ]);
});

test("a record reports the view that was drawn for it, as the combination's category", async () => {
  const server = await Collector.start(PLAN);
  const clock = new Clock();
  const client = await readyOf(server.url, { level: "loose", epsilon: 20, clock: clock.read });
  const drawn = new Set<string>();
  let right = 0;
  for (let day = 0; day < 20; day++) {
    clock.now += DAY;
    server.serverTime += DAY / 1000;
    await client.trustClock();
    const { taken, dropped } = await client.record(ANSWERS);
    const columns = (await client.outbox()).reports.at(-1)!.columns;
    expect(columns.map((column) => column.attribute)).toContain("mood");
    const view = columns.find(({ attribute }) => attribute.includes("+"))!;
    drawn.add(view.attribute);
    if (view.attribute === "smokes+sleeps") {
      expect([taken, dropped]).toEqual([["smokes", "sleeps", "mood"], { sex: "idle" }]);
      right += Number(view.codes[0] === 1 * 3 + 1);
    } else {
      expect([taken, dropped]).toEqual([["sleeps", "sex", "mood"], { smokes: "idle" }]);
      right += Number(view.codes[0] === 1 * 2 + 1);
    }
  }
  expect(drawn.size).toBe(2); // by chance one: once in half a million runs
  expect(right).toBeGreaterThan(15); // another category has less than e^-10 of the chance
});

test("a view whose attributes are not all answered is incomplete, and may be answered later", async () => {
  const server = await Collector.start(
    planOf({
      ...draft,
      views: [["smokes", "sleeps"]],
      attributes: ATTRIBUTES.slice(0, 2),
      chances: [],
      mechanisms: () => [krr(6, 1)],
      levels: { only: 1 },
    }),
  );
  const client = await readyOf(server.url);
  expect(await client.record({ smokes: "yes" })).toEqual({
    taken: [],
    dropped: { smokes: "incomplete" },
    invalid: [],
  });
  // An answer outside its domain is replaced, so that nobody learns of it.
  expect(await client.record({ smokes: "yes", sleeps: "never" })).toEqual({
    taken: ["smokes", "sleeps"],
    dropped: {},
    invalid: ["sleeps"],
  });
  expect((await client.record({ smokes: "yes", sleeps: "well" })).dropped).toEqual({
    smokes: "spent",
    sleeps: "spent",
  });
  expect(await client.spendings()).toEqual(
    ["smokes", "sleeps"].map((attribute) => ({
      attribute,
      epsilon: 1,
      reports: 1,
      life: 1,
      split: 0,
      delta: 0,
      left: undefined,
      answered: true,
    })),
  );
  expect(await client.counters()).toMatchObject({ incomplete: 1, spent: 2, recorded: 1 });
});

test("an attribute that is withheld withholds its views, and no other question", async () => {
  const server = await Collector.start(planOf({ ...draft, chances: [], levels: { only: 1.5 } }));
  const client = await readyOf(server.url, { withhold: ["smokes"] });
  expect(client.recordEpsilon).toBe(1);
  expect(await client.record(ANSWERS)).toEqual({
    taken: ["sleeps", "sex", "mood"],
    dropped: { smokes: "withheld" },
    invalid: [],
  });
});

test("a view is reported at the strictest level of its attributes", async () => {
  const server = await Collector.start(
    planOf({
      ...draft,
      chances: [],
      levels: { strict: 1.5, loose: 30 },
      mechanisms: (_, epsilon) => [2, 6, 6].map((k) => krr(k, epsilon / 3)),
    }),
  );
  const client = await readyOf(server.url, {
    level: "loose",
    levels: { sex: "strict" },
    epsilon: 30,
  });
  await client.record(ANSWERS);
  const { columns } = (await client.outbox()).reports[0]!;
  expect(columns.map(({ attribute, level }) => [attribute, level])).toEqual([
    ["mood", "loose"],
    ["sleeps+sex", "strict"],
    ["smokes+sleeps", "loose"],
  ]);
});

test("levels that together exceed an attribute's cap are refused", async () => {
  const attributes = ATTRIBUTES.map((each) =>
    each.name === "sleeps" ? { ...each, cap: 1 } : each,
  );
  const server = await Collector.start(
    planOf({
      ...draft,
      attributes,
      chances: [],
      levels: { strict: 1, loose: 3 },
      mechanisms: (_, epsilon) => [
        krr(2, 0.1),
        krr(6, epsilon === 1 ? 0.4 : 0.02),
        krr(6, epsilon === 1 ? 0.02 : 0.9),
      ],
    }),
  );
  const mixed = { level: "loose", levels: { smokes: "strict" }, epsilon: 3 };
  const refused = clientOf(server.url, mixed);
  await refused.waitReady(3000);
  expect((await refused.status()).detail).toMatch(
    /spend epsilon 1.3 on the views of "sleeps", more than its cap of 1/,
  );
  await readyOf(server.url, { ...mixed, withhold: ["smokes"] });
  await readyOf(server.url, { ...mixed, levels: {} });
});

test("caps of an attribute hold for all views that ask it", async () => {
  const both = planOf({ ...draft, chances: [], levels: { only: 1.5 } });
  const server = await Collector.start(both);
  const refused = clientOf(server.url, { caps: { attribute: { sleeps: 0.9 } } });
  await refused.waitReady(3000);
  expect((await refused.status()).detail).toMatch(
    /spends epsilon 1 on "sleeps", above the cap of 0.9/,
  );
  await readyOf(server.url, { caps: { attribute: { sleeps: 1 } } });
  const client = await readyOf(server.url, { caps: { attributeLife: { sleeps: 0.5 } } });
  expect((await client.record(ANSWERS)).taken).toEqual(["smokes", "sleeps", "mood"]);
  const spent = (await client.spendings()).map(({ attribute, life, left }) => [
    attribute,
    life,
    left,
  ]);
  expect(spent).toEqual([
    ["smokes", 0.5, undefined],
    ["sleeps", 0.5, 0],
    ["sex", 0, undefined],
    ["mood", 0.5, undefined],
  ]);
});

test("an agreement lists the views", async () => {
  const server = await Collector.start(PLAN);
  const agreement: Agreement = {
    survey: "daily",
    revision: revisionOf(PLAN),
    period: "P1D",
    domains: Object.fromEntries(ATTRIBUTES.map((each) => [each.name, each.categorical!.values])),
    levels: { strict: 1, loose: 20 },
    defaultLevel: "strict",
    views: draft.views,
  };
  await readyOf(server.url, { agreement });
  const client = clientOf(server.url, { agreement: { ...agreement, views: [] } });
  await client.waitReady(3000);
  expect((await client.status()).detail).toMatch(/views is \[\["smokes"/);
});

test("a view may reveal values only where all of its attributes may", async () => {
  const of = (sensitive: string[][]): Promise<Collector> => {
    const attributes = ATTRIBUTES.slice(0, 2).map((each, i) => {
      const { values } = each.categorical!;
      return { ...each, categorical: { values, sensitive: sensitive[i]!, classes: [], maps: [] } };
    });
    const more = { attributes, views: [["smokes", "sleeps"]], levels: { only: 1 }, chances: [] };
    return Collector.start(planOf({ ...draft, ...more, mechanisms: () => [krr(6, 1)] }));
  };
  await readyOf((await of([["yes"], []])).url);
  const both = (await of([["yes"], ["badly"]])).url;
  const client = clientOf(both);
  await client.waitReady(3000);
  expect((await client.status()).detail).toMatch(/a report of "smokes" may reveal no/);
  await readyOf(both, {
    mayReveal: { smokes: ["no"], sleeps: ["well", "so so"] },
  } as Partial<ClientOptions>);
});

const many = (name: string, k: number): WireAttribute =>
  categorical(
    name,
    Array.from({ length: k }, (_, i) => `${name}${i}`),
  );

test.each<[string, Parameters<typeof planOf>[0], RegExp]>([
  ["one attribute", { views: [["smokes"]] }, /views\[0\]: a view is of two attributes/],
  ["an attribute twice", { views: [["smokes", "smokes"]] }, /each attribute once/],
  ["an unknown attribute", { views: [["smokes", "age"]] }, /"age" is no attribute/],
  [
    "two views alike",
    {
      views: [
        ["smokes", "sleeps"],
        ["sleeps", "smokes"],
      ],
    },
    /views\[1\]: another view/,
  ],
  [
    "a number",
    { attributes: [...ATTRIBUTES, numeric("age", 0, 9)], views: [["smokes", "age"]] },
    /neither a list of values nor bins/,
  ],
  [
    "a memo",
    {
      attributes: [categorical("a", ["x", "y"], { memo: 1 }), ...ATTRIBUTES],
      views: [["a", "sex"]],
    },
    /a view has none/,
  ],
  [
    "too many combinations",
    { attributes: [many("a", 64), many("b", 65)], views: [["a", "b"]] },
    /at most 4096/,
  ],
  [
    "a name that is taken",
    {
      attributes: [...ATTRIBUTES, categorical("smokes+sex", ["x", "y"])],
      views: [["smokes", "sex"]],
    },
    /is taken/,
  ],
  [
    "a mechanism too many",
    { mechanisms: () => [2, 6, 6, 2].map((k) => krr(k, 0.5)) },
    /4 mechanisms for 3 questions/,
  ],
  [
    "a cap below its views",
    {
      attributes: ATTRIBUTES.map((each) => ({ ...each, cap: 0.75 })),
      chances: [],
      levels: { only: 1.5 },
    },
    /the views of "sleeps" have epsilon 1/,
  ],
])("a plan with a view of %s is refused", async (_, change, reason) => {
  await expect(parsePlan(planOf({ ...draft, ...change }))).rejects.toThrow(reason);
});
