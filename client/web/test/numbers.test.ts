/** Numbers in bins, and numbers that are protected by their value. */

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { type Agreement, type ClientOptions } from "../src/index.js";
import { checkAgreement } from "../src/agreement.js";
import { GradedNumeric } from "../src/plans/kinds/graded.js";
import { parsePlan } from "../src/plans/plan.js";
import type { WireAttribute, WireMechanism, WireNumeric } from "../src/plans/protobuf.js";
import { clientOf, Collector, krr, onebit, over64, planOf, readyOf, revisionOf } from "./kit.js";

const ONE = 2n ** 64n;

function income(more: Partial<WireNumeric> = {}): WireAttribute {
  const none = { step: 0, bins: 0, sensitive: [], resolution: [], cap: 0, edges: [] };
  const numeric = { low: 0, high: 1000, clamp: true, ...none, ...more };
  return { name: "income", title: "", numeric, mechanism: "", memo: 0 };
}

const edged = (edges: number[]) => income({ low: 0, high: 0, edges });

/** Waves of epsilon 1 over four bins: two patterns of two neighbours, and of every other one. */
function waves(sides = [4n]): WireMechanism {
  const include = over64(Math.E / (Math.E + 1)) - (1n << 20n);
  return {
    name: "waves",
    epsilon: 1,
    parameters: [
      { name: "chances", values: [ONE / 2n, ONE / 2n] },
      { name: "include", values: [include, include] },
      { name: "masks", values: [0b0011n, 0b0101n] },
      { name: "sides", values: sides },
    ],
  };
}

const one = (attribute: WireAttribute, mechanism: WireMechanism) => ({
  attributes: [attribute],
  levels: { only: 1 },
  mechanisms: () => [mechanism],
});

const RICH: Partial<WireNumeric> = { sensitive: [{ low: 800, high: 1000 }] };

beforeEach(() => {
  vi.spyOn(console, "warn").mockImplementation(() => {});
  vi.spyOn(console, "error").mockImplementation(() => {});
});

afterEach(() => {
  vi.restoreAllMocks();
});

test("bins between edges begin with their left ends, and the last has its right end", async () => {
  const plan = await parsePlan(planOf(one(edged([-10, -1, 0, 2.5, 100]), waves())));
  const domain = plan.attributes.get("income")!.domain;
  const { revision, defaultLevel } = plan;
  const agreed = { survey: "daily", period: "P1D", levels: { only: 1 }, revision, defaultLevel };
  checkAgreement({ ...agreed, domains: { income: [-10, -1, 0, 2.5, 100] } }, plan);
  expect(() => checkAgreement({ ...agreed, domains: { income: [-10, 100] } }, plan)).toThrow(
    "domains",
  );
  const found = [-11, -10, -1.001, -1, -0, 2.499, 2.5, 99, 100, 1e308].map((x) => domain.encode(x));
  expect(found).toEqual([0, 0, 0, 1, 2, 2, 3, 3, 3, 3]);
});

test("a number in bins is recorded, and its agreement has the ends of its range", async () => {
  const plan = planOf(one(income({ bins: 4 }), waves()));
  const agreement: Agreement = {
    survey: "daily",
    revision: revisionOf(plan),
    period: "P1D",
    domains: { income: [0, 1000] },
    levels: { only: 1 },
    defaultLevel: "only",
  };
  const server = await Collector.start(plan);
  const client = await readyOf(server.url, { agreement });
  expect((await client.record({ income: 1e9 })).invalid).toEqual([]);
  const [code] = (await client.outbox()).reports[0]!.columns[0]!.codes;
  expect(code).toBeLessThan(8);
});

test("two numbers in bins may be asked together, as a rectangle", async () => {
  const bins = (name: string, count: number): WireAttribute => ({
    ...income({ bins: count }),
    name,
  });
  const draft = one(bins("a", 2), waves([2n, 2n]));
  const grid = { ...draft, attributes: [bins("a", 2), bins("b", 2)], views: [["a", "b"]] };
  const server = await Collector.start(planOf(grid));
  const client = await readyOf(server.url);
  expect((await client.record({ a: 3, b: 999 })).taken).toEqual(["a", "b"]);
  const refused: [object, RegExp][] = [
    [{ mechanisms: () => [waves()] }, /does not fit 2 x 2 bins/],
    [{ mechanisms: () => [krr(4, 1)] }, /krr does not fit grid/],
    [{ attributes: [bins("a", 16), bins("b", 17)] }, /views\[0\]: .* at most 256 rectangles/],
  ];
  for (const [change, reason] of refused)
    await expect(parsePlan(planOf({ ...grid, ...change }))).rejects.toThrow(reason);
});

test("regions may reveal the ranges between them, which an app agrees to", async () => {
  const server = await Collector.start(planOf(one(income(RICH), onebit(1))));
  const refusalOf = async (options: Partial<ClientOptions>): Promise<string> => {
    const client = clientOf(server.url, options);
    await client.waitReady(3000);
    return (await client.status()).detail;
  };
  expect(await refusalOf({})).toMatch(/a report of "income" may reveal 0..800; .*\["0..800"\]/);
  expect(await refusalOf({ mayReveal: { income: ["0..500", "600..800"] } })).toMatch(/may reveal/);
  expect(await refusalOf({ mayReveal: { income: ["poor"] } })).toMatch(
    /mayReveal\["income"\]: a range of numbers is written as "0..800"/,
  );
  await readyOf(server.url, { mayReveal: { income: ["500..900", "0..500"] } });
});

test.each<[number, number, string]>([
  [0, 800, "0..800"],
  [0.1, 0.5, "0.1..0.5"],
  [1e-5, 1e16, "1e-05..1e+16"],
  [0.0001, 1e15, "0.0001..1000000000000000"],
])("the range %d to %d is written as in Python", (low, high, words) => {
  const domain = new GradedNumeric(low, 2 * high, false, 0, [[high, 2 * high]], [], 0);
  expect(domain.ordinary).toEqual([words]);
});

const half = { upto: 500, within: 10 };
const rest = { upto: 1000, within: 100 };

test.each<[string, Partial<WireNumeric>, RegExp | undefined]>([
  ["regions", RICH, undefined],
  ["a resolution of a mechanism that protects all alike", { resolution: [half, rest] }, /policy/],
  ["regions and a resolution", { ...RICH, resolution: [half, rest] }, /not both/],
  ["a region outside", { sensitive: [{ low: 900, high: 1001 }] }, /must lie in 0..1000/],
  ["a region that ends before it begins", { sensitive: [{ low: 9, high: 8 }] }, /must lie/],
  ["regions that overlap", { sensitive: [0, 1].map((low) => ({ low, high: low + 1 })) }, /overlap/],
  ["a region of all", { sensitive: [{ low: 0, high: 1000 }] }, /all numbers are sensitive/],
  ["a resolution that ends early", { resolution: [half] }, /must reach 1000/],
  ["a resolution that falls", { resolution: [rest, half] }, /must rise/],
  ["a resolution of nothing", { resolution: [{ upto: 1000, within: 0 }] }, /within must be/],
  ["a cap of nothing", { cap: 2 }, /needs a resolution/],
  ["a cap of nan", { resolution: [half, rest], cap: NaN }, />= 1/],
  ["a cap below 1", { resolution: [half, rest], cap: 0.5 }, />= 1/],
  ["a cap that nothing reaches", { resolution: [half, rest], cap: 55.5 }, /above the number/],
  ["regions in bins", { ...RICH, bins: 4 }, /protected alike/],
])("a plan of a number with %s is read or refused", async (_, more, reason) => {
  const mechanism = more.bins ? waves() : onebit(1);
  const reading = parsePlan(planOf(one(income(more), mechanism)));
  if (reason) await expect(reading).rejects.toThrow(reason);
  else await reading;
});

test.each<[string, WireAttribute, WireMechanism, RegExp]>([
  ["edges and bins", income({ bins: 4, edges: [0, 1, 10, 100, 1000] }), waves(), /place/],
  ["edges that fall", edged([0, 10, 1, 100, 1000]), waves(), /apart/],
  ["one edge", edged([0]), waves(), /low < high/],
  ["one bin", income({ bins: 1 }), waves(), /2..256/],
  ["257 bins", income({ bins: 257 }), waves(), /2..256/],
  ["bins and a step", income({ bins: 4, step: 250 }), waves(), /not both/],
  ["bins that doubles do not tell apart", income({ bins: 4, high: 5e-324 }), waves(), /apart/],
  ["other bins than the mechanism has", income({ bins: 5 }), waves(), /does not fit 5 bins/],
  ["bins by two sides", income({ bins: 4 }), waves([2n, 2n]), /does not fit 4 bins/],
  ["bins by categories", income({ bins: 4 }), krr(4, 1), /krr does not fit binned/],
  ["any number by bins", income(), waves(), /waves does not fit numeric/],
])("a plan of %s is refused", async (_, attribute, mechanism, reason) => {
  await expect(parsePlan(planOf(one(attribute, mechanism)))).rejects.toThrow(reason);
});
