/** Panels and properties are in the clear: what they link, and what a server cannot make of them. */

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { type Agreement, Client, type ClientOptions, MemoryStore } from "../src/index.js";
import { Account } from "../src/recording/account.js";
import { add } from "../src/recording/outbox.js";
import { type BatchRow, EMPTY, Places } from "../src/recording/places.js";
import { termsOf } from "../src/recording/terms.js";
import { seal } from "../src/sending/sealing.js";
import { list, put, transact } from "../src/storage/store.js";
import { parsePlan } from "../src/plans/plan.js";
import { SystemCoins } from "../src/coins.js";
import { categorical, clientOf, Collector, krr, planOf, readyOf, revisionOf } from "./kit.js";

const PROPERTIES = { platform: ["ios", "android"], version: ["1", "2"] };

const plan = (panels = 0): Uint8Array =>
  planOf({
    attributes: [categorical("answer", ["no", "yes"])],
    levels: { only: 1 },
    mechanisms: () => [krr(2, 1)],
    panels,
    properties: PROPERTIES,
  });

const agreementOn = (panels: number): Agreement => ({
  survey: "daily",
  revision: revisionOf(plan(panels)),
  period: "P1D",
  domains: { answer: ["no", "yes"] },
  levels: { only: 1 },
  defaultLevel: "only",
  ...(panels && { panels }),
  properties: PROPERTIES,
});

/** Return why a client refuses the plan. */
async function refusalOf(bytes: Uint8Array, options: Partial<ClientOptions>): Promise<string> {
  const server = await Collector.start(bytes);
  const client = clientOf(server.url, options);
  await client.waitReady(3000);
  const { reason, detail } = await client.status();
  expect(reason).toBe("plan_refused");
  expect((await client.record({ answer: "yes" })).taken).toEqual([]);
  expect(server.batches).toEqual([]);
  return detail;
}

beforeEach(() => {
  vi.spyOn(console, "warn").mockImplementation(() => {});
  vi.spyOn(console, "error").mockImplementation(() => {});
});

afterEach(() => {
  vi.restoreAllMocks();
});

test("a plan with more panels than the app agreed to is refused", async () => {
  for (const panels of [0, 8]) {
    expect(await refusalOf(plan(16), { panels })).toMatch(/has 16 panels: .*pass panels: 16/);
  }
  const agreement = { ...agreementOn(16), panels: 8 };
  expect(await refusalOf(plan(16), { agreement })).toMatch(/panels is 16, the app expects 8/);
  const properties = { ...PROPERTIES, version: ["1"] };
  expect(await refusalOf(plan(), { agreement: { ...agreementOn(0), properties } })).toMatch(
    /properties\["version"\] is/,
  );
});

test("a property that the survey does not declare is refused and never sent", async () => {
  const [properties, words] = [{ colour: "red" }, /no property "colour"; it declares platform,/];
  expect(await refusalOf(plan(), { properties })).toMatch(words);
  const options = { url: "http://localhost:1", store: new MemoryStore() };
  const make = () => new Client({ ...options, agreement: agreementOn(0), properties });
  expect(make).toThrow(words);
  const store = new MemoryStore();
  const wrong = { platform: 1 as unknown as string };
  expect(
    () =>
      new Client({ url: "http://localhost:1", survey: "a", epsilon: 1, store, properties: wrong }),
  ).toThrow(/the value of a property is a name, got 1/);
  expect(
    () => new Client({ url: "http://localhost:1", survey: "a", epsilon: 1, store, panels: -1 }),
  ).toThrow(/panels must be a whole number/);
});

test("a value that the survey does not declare is sent as none given", async () => {
  const properties = { platform: "ios", version: "3" }; // a release after the survey was made
  const words = '"version" has no value "3"; the survey declares 1, 2: none is sent';
  for (const own of [{}, { agreement: agreementOn(0) }]) {
    const server = await Collector.start(plan());
    const client = await readyOf(server.url, { ...own, properties });
    expect((await client.status()).detail).toContain(words);
    expect((await client.record({ answer: "yes" })).taken).toEqual(["answer"]);
    expect(await client.flush()).toBe(true);
    expect(server.batches.map(({ batch }) => batch.properties)).toEqual([["ios", ""]]);
    expect(vi.mocked(console.warn).mock.calls.flat().join("\n")).toContain(words);
  }
});

test("rows of two panels or properties share no batch, and the outbox shows both", async () => {
  const server = await Collector.start(plan(4));
  const client = await readyOf(server.url, { panels: 4, properties: { version: "2" } });
  for (let i = 0; i < 16; i++) {
    const platform = i % 2 ? "ios" : "android";
    const person = client.person(`person ${i}`, i < 8 ? { properties: { platform } } : {});
    await person.grant();
    expect((await person.record({ answer: "yes" })).taken).toEqual(["answer"]);
  }
  const kind = ({ panel, properties }: { panel: number; properties: string[] }): string =>
    JSON.stringify([panel, properties]);
  const { reports } = await client.outbox();
  const wanted = new Map<string, number>();
  for (const each of reports) wanted.set(kind(each), (wanted.get(kind(each)) ?? 0) + 1);
  const properties = new Set(reports.map((each) => JSON.stringify(each.properties)));
  expect(properties).toEqual(new Set(['["ios",""]', '["android",""]', '["","2"]']));
  expect(reports.every(({ panel }) => panel >= 1 && panel <= 4)).toBe(true);
  // More than eight batches go one after the other.
  while (!(await client.flush())) expect(server.batches.length).toBeLessThan(16);
  const sent = new Map(server.batches.map(({ batch }) => [kind(batch), batch.rows]));
  expect(sent).toEqual(wanted);
  expect(server.batches.length).toBe(wanted.size);
});

test("batches have all waiting reports of a kind, and leave in a random order", async () => {
  const places = new Places("daily");
  const kinds = Array.from({ length: 8 }, (_, i) => [`${i}`]);
  const row = { person: "", period: "once", revision: "00", size: 1, codes: [], memos: [] };
  const orders = new Set<string>();
  for (let run = 0; run < 3; run++) {
    const store = new MemoryStore();
    await transact(store, "strict", function* () {
      let queue = EMPTY;
      for (let i = 0; i < 16; i++) {
        const report = { ...row, at: i, properties: kinds[i % 8]! };
        ({ queue } = yield* add(places, queue, report, [99, 99]));
      }
      const kept = new Uint8Array(1);
      yield* put(places.plan, kept);
      yield* seal(places, kept, "00", 2, 1 << 20, false, new SystemCoins());
    });
    const batches = await transact(store, "read", () => list<BatchRow>(places.batches));
    expect(batches.map(([, { rows }]) => rows.length)).toEqual(Array(8).fill(2));
    orders.add(JSON.stringify(batches.map(([, { properties }]) => properties)));
  }
  expect(orders.size).toBe(3); // two of 8! orders are the same once in ten thousand runs
});

test("panels are drawn uniformly, and once", async () => {
  const parsed = await parsePlan(plan(16));
  const agreed = {
    survey: "daily",
    epsilon: 1,
    revision: undefined,
    mayReveal: new Map(),
    mayRevealByMap: new Map(),
    mayTellChanges: [],
    agreement: undefined,
    panels: 16,
    delta: undefined,
  };
  const choices = { level: "only", levels: [], maps: [], properties: [] };
  const terms = termsOf(parsed, choices, agreed, new Set());
  const drawn = new Array<number>(17).fill(0);
  for (let i = 0; i < 1600; i++) {
    const account = new Account("", "daily");
    account.enter(terms, Date.UTC(2026, 6, 4), undefined, new SystemCoins());
    const panel = account.panelOf(terms);
    drawn[panel]!++;
    const again = new Account(account.dump(), "daily");
    again.enter(terms, Date.UTC(2026, 6, 5), undefined, new SystemCoins());
    expect(again.panelOf(terms)).toBe(panel);
  }
  expect(drawn[0]).toBe(0);
  const chi = drawn.slice(1).reduce((sum, n) => sum + (n - 100) ** 2 / 100, 0);
  expect(chi).toBeLessThan(60); // one in ten million is above
});
