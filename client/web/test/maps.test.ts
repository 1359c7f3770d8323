/** Maps of sensitive values, which a person chooses before the answer is known. */

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { type Agreement, Client, type ClientOptions, MemoryStore } from "../src/index.js";
import { parsePlan } from "../src/plans/plan.js";
import type { WireAttribute } from "../src/plans/protobuf.js";
import {
  categorical,
  clientOf,
  Collector,
  krr,
  planOf,
  readyOf,
  revisionOf,
  sensitiveUnary,
} from "./kit.js";

const VALUES = ["none", "cold", "cancer"];
const MAPS: Record<string, string[]> = { both: ["cold", "cancer"], mine: ["cancer"] };

function diagnosis(maps = MAPS, more: Partial<WireAttribute> = {}): WireAttribute {
  const wire = Object.entries(maps).map(
    ([name, sensitive]) => [name, { sensitive }] as [string, { sensitive: string[] }],
  );
  return categorical("diagnosis", VALUES, {
    categorical: { values: VALUES, sensitive: [], classes: [], maps: wire },
    ...more,
  });
}

const mechanismOf = (sensitive: readonly string[]) =>
  sensitiveUnary(VALUES.map((value) => sensitive.includes(value)));

const draft = {
  attributes: [diagnosis()],
  levels: { only: 1 },
  mechanisms: () => [krr(3, 1)],
  mapped: () => Object.values(MAPS).map(mechanismOf),
};
const PLAN = planOf(draft);

const MINE = {
  maps: { diagnosis: "mine" },
  mayReveal: { diagnosis: { mine: ["none", "cold"] } },
} satisfies Partial<ClientOptions>;

/** Return why a client refuses the plan. */
async function refusalOf(url: string, options: Partial<ClientOptions>): Promise<string> {
  const client = clientOf(url, options);
  await client.waitReady(3000);
  const { reason, detail } = await client.status();
  expect(reason).toBe("plan_refused");
  return detail;
}

beforeEach(() => {
  vi.spyOn(console, "warn").mockImplementation(() => {});
  vi.spyOn(console, "error").mockImplementation(() => {});
});

afterEach(() => {
  vi.restoreAllMocks();
});

test("a report has the mechanism of the map that was chosen, and names the map", async () => {
  const server = await Collector.start(PLAN);
  const client = await readyOf(server.url, MINE);
  await client.record({ diagnosis: "cold" });
  const none = client.person("ann", { maps: {} });
  const inherited = client.person("bob");
  for (const person of [none, inherited]) {
    await person.grant();
    expect((await person.record({ diagnosis: "cancer" })).taken).toEqual(["diagnosis"]);
  }
  const { reports } = await client.outbox();
  expect(reports.map(({ columns: [column] }) => column!.map)).toEqual(["mine", "", "mine"]);
  expect(reports.map(({ columns: [column] }) => column!.codes.length)).toEqual([1, 1, 1]);
  expect(await client.flush()).toBe(true);
  // Each cohort has a column of its own, in the order of their names.
  const rows = server.batches.flatMap(({ batch }) =>
    batch.columns.map(({ attribute, level, map, codes }) => [attribute, level, map, codes.length]),
  );
  expect(rows).toEqual([
    ["diagnosis", "only", "", 1],
    ["diagnosis", "only", "mine", 2],
  ]);
});

test("the map's sensitive values are told from others no better than it says", async () => {
  const plan = await parsePlan(PLAN);
  const { mechanisms, mapped } = plan.levels.get("only")!;
  expect(mechanisms.get("diagnosis")!.policy).toBeUndefined();
  for (const [map, sensitive] of Object.entries(MAPS)) {
    const { policy, epsilon } = mapped.get("diagnosis")!.get(map)!;
    expect(epsilon).toBe(1);
    const unlimited = VALUES.map(
      (_, x) => policy!.distances[policy!.classes[x]!]![policy!.classes[0]!]! > 2n ** 63n,
    );
    // From "none", which no map protects: only ordinary values are told without limit.
    expect(VALUES.filter((_, x) => !unlimited[x])).toEqual(
      sensitive.length === 2 ? ["none", "cold", "cancer"] : ["cancer"],
    );
  }
});

test.each<[string, Partial<ClientOptions>, RegExp]>([
  ["a map that the plan lacks", { maps: { diagnosis: "yours" } }, /map must be one of both, mine/],
  ["an attribute that it lacks", { maps: { mood: "mine" } }, /has no attribute "mood"/],
  ["a map that may reveal what was not agreed", { maps: MINE.maps }, /may reveal none or cold/],
  [
    "what another map may reveal",
    { maps: MINE.maps, mayReveal: { diagnosis: { both: ["none", "cold"] } } },
    /by the map "mine" may reveal none or cold/,
  ],
  [
    "what a map that the plan lacks may reveal",
    { mayReveal: { diagnosis: { yours: ["none"] } } },
    /map must be one of/,
  ],
])("%s refuses the plan", async (_, options, reason) => {
  const server = await Collector.start(PLAN);
  expect(await refusalOf(server.url, options)).toMatch(reason);
});

test("values that may be revealed whatever the map are allowed for each", async () => {
  const server = await Collector.start(PLAN);
  await readyOf(server.url, { maps: MINE.maps, mayReveal: { diagnosis: ["none", "cold"] } });
  await readyOf(server.url, { maps: { diagnosis: "" } });
  await readyOf(server.url, { maps: MINE.maps, withhold: ["diagnosis"] });
});

test("an agreement lists the maps, and a plan with others is refused", async () => {
  const server = await Collector.start(PLAN);
  const agreement: Agreement = {
    survey: "daily",
    revision: revisionOf(PLAN),
    period: "P1D",
    domains: { diagnosis: VALUES },
    levels: { only: 1 },
    defaultLevel: "only",
    maps: { diagnosis: { mine: ["cancer"], both: ["cold", "cancer"] } },
  };
  const { maps } = MINE;
  await readyOf(server.url, { agreement, maps });
  for (const others of [{}, { diagnosis: { mine: ["cancer"] } }]) {
    const other = { ...agreement, maps: others };
    expect(await refusalOf(server.url, { agreement: other, maps })).toMatch(
      /maps\["diagnosis"\] is/,
    );
  }
});

test.each<[string, Partial<ClientOptions>, RegExp]>([
  ["a map that is no name", { maps: { a: 1 as unknown as string } }, /a map is a name, got 1/],
  [
    "what a map may reveal, as a text",
    { mayReveal: { a: { b: "no" as unknown as string[] } } },
    /mayReveal\["a"\]\["b"\] must be a list of names/,
  ],
])("%s is refused at once", (_, options, reason) => {
  const base = { url: "http://127.0.0.1:1", survey: "daily", epsilon: 1, store: new MemoryStore() };
  expect(() => new Client({ ...base, ...options })).toThrow(reason);
});

const many = Object.fromEntries(Array.from({ length: 9 }, (_, i) => [`m${i}`, ["cold"]]));

test.each<[string, Parameters<typeof planOf>[0], RegExp]>([
  ["nine maps", { attributes: [diagnosis(many)] }, /8 maps, got 9/],
  ["two maps alike", { attributes: [diagnosis({ a: ["cold"], b: ["cold"] })] }, /the same values/],
  ["a map of nothing", { attributes: [diagnosis({ a: [] })] }, /would protect nothing/],
  ["a map of all", { attributes: [diagnosis({ a: VALUES })] }, /lists all values/],
  ["a map of other values", { attributes: [diagnosis({ a: ["flu"] })] }, /one of the values/],
  ["a map of one value twice", { attributes: [diagnosis({ a: ["cold", "cold"] })] }, /twice/],
  ["maps and a memo", { attributes: [diagnosis(MAPS, { memo: 1 })] }, /protected alike/],
  ["a mechanism less", { mapped: () => [mechanismOf(MAPS["both"]!)] }, /1 mechanisms for 2 maps/],
  [
    "a mechanism more",
    { mapped: () => ["both", "mine", "mine"].map((map) => mechanismOf(MAPS[map]!)) },
    /3 mechanisms for 2 maps/,
  ],
  [
    "the mechanism of another map",
    { mapped: () => [mechanismOf(MAPS["mine"]!), mechanismOf(MAPS["mine"]!)] },
    /map "both": policy_unary keeps another policy/,
  ],
  [
    "a mechanism of another epsilon",
    { mapped: () => [mechanismOf(MAPS["both"]!), krr(3, 0.5)] },
    /epsilon 0.5, and without a map it is 1/,
  ],
])("a plan with %s is refused", async (_, change, reason) => {
  await expect(parsePlan(planOf({ ...draft, ...change }))).rejects.toThrow(reason);
});
