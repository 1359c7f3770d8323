import "fake-indexeddb/auto";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import {
  type Agreement,
  Client,
  type ClientOptions,
  IndexedDbStore,
  MemoryStore,
  type Store,
  type Work,
} from "../src/index.js";
import { list } from "../src/storage/store.js";
import {
  categorical,
  clientOf,
  Clock,
  Collector,
  DAY,
  krr,
  MOODS,
  NOON,
  NOWHERE,
  numeric,
  planOf,
  QUICK,
  readyOf,
  revisionOf,
  until,
} from "./kit.js";

let warned: ReturnType<typeof vi.spyOn>;

beforeEach(() => {
  warned = vi.spyOn(console, "warn").mockImplementation(() => {});
  vi.spyOn(console, "error").mockImplementation(() => {});
});

afterEach(() => {
  vi.restoreAllMocks();
});

let made = 0;
const fresh = (): IndexedDbStore => new IndexedDbStore(`client ${made++}`);

/** An agreement on a plan of moods and walks, as `hearsay codegen --typescript` writes it. */
function agreementOn(plan: Uint8Array, more: Partial<Agreement> = {}): Agreement {
  return {
    survey: "daily",
    revision: revisionOf(plan),
    period: "P1D",
    domains: { mood: MOODS, walked: [0, 20] },
    levels: { strict: 1, loose: 4 },
    defaultLevel: "strict",
    plan: Buffer.from(plan).toString("base64"),
    ...more,
  };
}

test("an answer is queued, sent, and acknowledged, and what left can be looked at", async () => {
  const server = await Collector.start();
  const client = await readyOf(server.url);
  const recorded = await client.record({ mood: "good", walked: 3 });
  expect(recorded).toEqual({ taken: ["mood", "walked"], dropped: {}, invalid: [] });
  const { reports } = await client.outbox();
  expect(reports.map(({ rows, period, survey }) => [rows, period, survey])).toEqual([
    [1, "2026-01-01", "daily"],
  ]);
  expect(reports[0]!.columns.map((column) => [column.attribute, column.level])).toEqual([
    ["mood", "strict"],
    ["walked", "strict"],
  ]);
  expect(await client.flush()).toBe(true);
  const outbox = await client.outbox();
  expect([outbox.reports, outbox.batches]).toEqual([[], []]);
  expect(outbox.sent.map(({ became, batch }) => [became, batch])).toEqual([
    ["stored", server.batches[0]!.batch],
  ]);
  expect(server.batches[0]!.batch.columns).toEqual(reports[0]!.columns);
  expect(await client.counters()).toEqual({ recorded: 1, stored: 1 });
  expect((await client.delivery()).lastSuccess).toBeGreaterThan(0);
  const once = { epsilon: 0.5, reports: 1, life: 0.5, split: 0, delta: 0, left: undefined };
  expect(await client.spendings()).toEqual([
    { attribute: "mood", ...once, answered: true },
    { attribute: "walked", ...once, answered: true },
  ]);
});

test("nothing happens without consent: the server is not even asked", async () => {
  const server = await Collector.start();
  const client = clientOf(server.url, { consent: false });
  expect(await client.waitReady(200)).toBe(false);
  expect((await client.status()).reason).toBe("no_consent");
  expect(await client.record({ mood: "good" })).toEqual({
    taken: [],
    dropped: { mood: "no_consent" },
    invalid: [],
  });
  expect(await client.flush(500)).toBe(true);
  expect(server.calls).toEqual([]);
  await client.grant();
  expect(await client.waitReady()).toBe(true);
});

test("nothing is kept before somebody consents, also where the app ships the plan", async () => {
  const inner = new MemoryStore();
  const writes: string[] = [];
  const store: Store = {
    run(work, durability) {
      if (durability !== "read") writes.push(durability);
      return inner.run(work);
    },
    inMemory: true,
  };
  const client = clientOf(NOWHERE, { agreement: agreementOn(planOf()), consent: false, store });
  expect((await client.status()).reason).toBe("no_consent");
  expect((await client.record({ mood: "good" })).dropped).toEqual({ mood: "no_consent" });
  expect([
    await client.flush(100),
    (await client.outbox()).reports,
    await client.spendings(),
  ]).toEqual([true, [], expect.anything()]);
  expect(writes).toEqual([]);
  await client.grant();
  expect((await client.record({ mood: "good" })).taken).toEqual(["mood"]);
});

test("a flush waits for what was recorded before it, also while another one is under way", async () => {
  const server = await Collector.start();
  const client = await readyOf(server.url, { delivery: { ...QUICK, batchAge: 60_000 } });
  for (let i = 0; i < 15; i++) {
    const person = client.person(`p${i}`);
    await person.grant();
    await person.record({ mood: "good" });
    const first = client.flush();
    if (i % 2) await new Promise((resolve) => setTimeout(resolve, i / 2));
    await person.record({ walked: 1 });
    const second = client.flush();
    expect(await second).toBe(true);
    expect((await client.outbox()).reports).toEqual([]);
    await first;
  }
});

test("an attribute is randomised once per period, person and ledger, however many record at once", async () => {
  const server = await Collector.start();
  const name = `shared ${made++}`;
  const clock = new Clock();
  const options = { clock: clock.read, vouched: () => true };
  const tabs = await Promise.all(
    [0, 1, 2, 3].map(() => readyOf(server.url, { ...options, store: new IndexedDbStore(name) })),
  );
  const all = await Promise.all(
    tabs.flatMap((tab) => [0, 1, 2].map(() => tab.record({ mood: "good", walked: 3 }))),
  );
  expect(all.flatMap((each) => each.taken).sort()).toEqual(["mood", "walked"]);
  expect((await tabs[0]!.record({ mood: "good" })).dropped).toEqual({ mood: "spent" });
  clock.now += DAY;
  server.serverTime += DAY / 1000;
  expect((await tabs[1]!.record({ mood: "good" })).taken).toEqual(["mood"]);
});

test("many people of many tabs are counted once each", async () => {
  const server = await Collector.start();
  const name = `crowd ${made++}`;
  const tabs = await Promise.all(
    [0, 1, 2].map(() =>
      readyOf(server.url, { store: new IndexedDbStore(name), vouched: () => true }),
    ),
  );
  await Promise.all(
    tabs.map(async (tab) => {
      for (let i = 0; i < 40; i++) {
        const person = tab.person(`p${i}`);
        await person.grant();
        await person.record({ mood: "good", walked: 1 });
      }
    }),
  );
  for (const tab of tabs) expect(await tab.flush()).toBe(true);
  const ids = new Map(
    server.batches.map(({ batch, bytes }) => [
      Buffer.from(batch.id).toString("hex"),
      { batch, bytes },
    ]),
  );
  for (const { batch, bytes } of server.batches) {
    expect(bytes).toEqual(ids.get(Buffer.from(batch.id).toString("hex"))!.bytes);
  }
  expect([...ids.values()].reduce((rows, { batch }) => rows + batch.rows, 0)).toBe(40);
});

test("revoking empties the queue, stops sending, and what is under way is not sent again", async () => {
  const server = await Collector.start();
  const client = await readyOf(server.url, { delivery: { ...QUICK, batchAge: 60_000 } });
  await client.record({ mood: "good" });
  await client.revoke();
  expect((await client.outbox()).reports).toEqual([]);
  expect((await client.status()).reason).toBe("no_consent");
  expect((await client.record({ walked: 1 })).dropped).toEqual({ walked: "no_consent" });
  expect(await client.flush()).toBe(true);
  expect(server.batches).toEqual([]);
  expect(await client.counters()).toMatchObject({ revoked: 1 });
  // What was spent stays spent after a new grant, and nothing comes back.
  await client.grant();
  expect((await client.record({ mood: "good", walked: 1 })).dropped).toEqual({ mood: "spent" });
});

test("revoking while a call hangs ends it at once", async () => {
  const server = await Collector.start();
  server.serverTime = Date.now() / 1000;
  const client = await readyOf(server.url, { clock: Date.now });
  server.answers = ({ method }) => method === "Submit"; // and never an answer
  await client.record({ mood: "good" });
  await until(() => server.of("Submit").length === 1);
  const began = performance.now();
  await client.revoke({ forget: true });
  expect(performance.now() - began).toBeLessThan(1000);
  server.answers = () => false;
  await until(() => server.of("Forget").length === 1);
  expect(server.forgotten).toEqual([Buffer.from(server.batches[0]!.batch.id).toString("hex")]);
  await new Promise((resolve) => setTimeout(resolve, 100));
  expect(server.batches).toHaveLength(1);
  expect((await client.outbox()).sent.map(({ became }) => became)).toEqual(["revoked"]);
});

test("what one person takes back leaves what others said", async () => {
  const server = await Collector.start();
  const client = await readyOf(server.url, { delivery: { ...QUICK, batchAge: 60_000 } });
  const [ann, bob] = [client.person("ann"), client.person("bob")];
  for (const each of [ann, bob]) {
    await each.grant();
    expect((await each.record({ mood: "good" })).taken).toEqual(["mood"]);
  }
  await ann.revoke();
  expect((await ann.status()).reason).toBe("no_consent");
  expect((await bob.status()).ready).toBe(true);
  expect(await client.flush()).toBe(true);
  expect(server.batches.map(({ batch }) => batch.rows)).toEqual([1]);
  expect((await ann.spendings())[0]!.answered).toBe(true);
});

test("a sealed batch that has not left keeps the others' rows; one that may have left is dropped whole", async () => {
  const server = await Collector.start();
  const client = await readyOf(server.url, {
    delivery: { ...QUICK, batchAge: 60_000, batchRows: 2 },
  });
  const people = ["ann", "bob", "cid", "dan"].map((name) => client.person(name));
  for (const each of people) await each.grant();
  server.answers = ({ method }, response) =>
    method === "Submit" && !response.writeHead(503).end().closed;
  for (const each of people) await each.record({ mood: "good" });
  await until(
    async () => (await client.outbox()).batches.length === 2 && server.of("Submit").length > 0,
  );
  const tried = new Set(server.batches.map(({ batch }) => Buffer.from(batch.id).toString("hex")));
  expect(tried.size).toBe(1); // the second one has not left: the first failed
  for (const each of people.slice(0, 1)) await each.revoke({ forget: true });
  const { batches, sent } = await client.outbox();
  const left = batches.map(({ id, rows }) => [tried.has(Buffer.from(id).toString("hex")), rows]);
  expect([left, sent.length]).toEqual([[[false, 2]], 1]);
  await people[2]!.revoke();
  expect((await client.outbox()).batches.map(({ rows }) => rows)).toEqual([1]);
  server.answers = () => false;
  expect(await client.flush()).toBe(true);
  expect(server.forgotten).toEqual([...tried]);
});

test("each person has a level and caps of their own", async () => {
  const server = await Collector.start();
  const client = await readyOf(server.url);
  const ann = client.person("ann", { level: "loose", levels: { walked: "strict" } });
  await ann.grant();
  await ann.record({ mood: "good", walked: 1 });
  expect(
    (await client.outbox()).reports.at(-1)!.columns.map((c) => [c.attribute, c.level]),
  ).toEqual([
    ["mood", "loose"],
    ["walked", "strict"],
  ]);
  const bob = client.person("bob");
  await bob.grant();
  await bob.setCaps({ life: 0.5 });
  expect((await bob.record({ mood: "good", walked: 1 })).dropped).toEqual({ walked: "spent" });
  await client.record({ mood: "good", walked: 1 });
  expect((await bob.spendings())[1]!.left).toBe(0);
  await bob.setCaps({ attribute: { mood: 0.1 } });
  expect(await bob.status()).toMatchObject({ reason: "plan_refused" });
  await expect(bob.setCaps({ life: -1 })).rejects.toThrow("finite and >= 0");
  const eve = client.person("eve", { level: "none" });
  await eve.grant();
  expect(await eve.status()).toMatchObject({
    reason: "plan_refused",
    detail: /level must be one of strict, loose/,
  });
});

test("an answer outside the domain is replaced by a random one, and counted on the device alone", async () => {
  const server = await Collector.start();
  const drops: unknown[] = [];
  const client = await readyOf(server.url, {
    onDrop: (reason, count) => drops.push([reason, count]),
  });
  const seen: string[] = [];
  for (let i = 0; i < 300; i++) {
    const person = client.person(`p${i}`, { level: "loose" });
    await person.grant();
    const recorded = await person.record({ mood: "elsewhere", walked: Number.NaN });
    expect(recorded).toEqual({
      taken: ["mood", "walked"],
      dropped: {},
      invalid: ["mood", "walked"],
    });
  }
  expect(await client.flush()).toBe(true);
  for (const { batch } of server.batches) {
    for (const code of batch.columns.find((c) => c.attribute === "mood")!.codes)
      seen.push(MOODS[code]!);
  }
  const counts = MOODS.map((mood) => seen.filter((each) => each === mood).length);
  // Uniform: 100 each, with a standard deviation of 8.2.
  for (const count of counts) expect(Math.abs(count - 100)).toBeLessThan(41);
  expect(await client.counters()).toMatchObject({ recorded: 300, invalid: 600 });
  expect(drops).toEqual([]);
});

test("a strict client throws before anything is spent, and no message repeats an answer", async () => {
  const server = await Collector.start();
  const client = await readyOf(server.url, { strict: true });
  for (const [answers, message] of [
    [{ mood: "secret" }, /mood must be one of bad, so-so, good, got another string/],
    [{ walked: "secret" }, /walked must be a number, got a string/],
    [{ walked: { secret: 1 } }, /walked must be a number, got a object/],
    [{ weather: "secret" }, /has no attribute "weather"; it has mood, walked/],
  ] as const) {
    const error: Error = await client.record({ walked: 3, ...answers }).then(
      () => Error("nothing was thrown"),
      (each) => each,
    );
    expect(error.message).toMatch(message);
    expect([error.name, /secret/.test(error.message)]).toEqual(["InvalidInput", false]);
  }
  expect((await client.spendings()).map(({ answered }) => answered)).toEqual([false, false]);
  await client.close(1);
  await expect(client.record({ mood: "good" })).rejects.toThrow("this client is closed");
});

test("no answer is in what the console is told, whatever the answer does", async () => {
  const server = await Collector.start();
  const debugged = vi.spyOn(console, "debug").mockImplementation(() => {});
  const client = await readyOf(server.url, { debug: true });
  const answers = {
    get mood(): string {
      throw new TypeError("xyzzy");
    },
    walked: { toString: () => "xyzzy", valueOf: () => "xyzzy" },
    other: "xyzzy",
  };
  expect(await client.record(answers)).toEqual({
    taken: ["mood", "walked"],
    dropped: { other: "unknown" },
    invalid: ["mood", "walked"],
  });
  await client.record({ mood: "xyzzy" });
  await client.flush();
  expect(debugged.mock.calls.length).toBeGreaterThan(3);
  expect(
    JSON.stringify([debugged.mock.calls, warned.mock.calls, vi.mocked(console.error).mock.calls]),
  ).not.toContain("xyzzy");
});

test("drops are told as they happen, and each reason is warned of once", async () => {
  const server = await Collector.start();
  const drops: unknown[] = [];
  const client = await readyOf(server.url, {
    withhold: ["walked"],
    onDrop: (reason, count) => {
      drops.push([reason, count]);
      throw new Error("of the app");
    },
  });
  expect(await client.record({ mood: "good", walked: 1, weather: 1 })).toEqual({
    taken: ["mood"],
    dropped: { walked: "withheld", weather: "unknown" },
    invalid: [],
  });
  await client.record({ mood: "good" });
  await client.record({ mood: "good" });
  expect(drops).toEqual([
    ["withheld", 1],
    ["unknown", 1],
    ["spent", 1],
    ["spent", 1],
  ]);
  expect(
    warned.mock.calls.filter(([words]: unknown[]) => String(words).includes("(spent)")),
  ).toHaveLength(1);
  expect(client.recordEpsilon).toBe(0.5); // what is withheld costs nothing
});

test("null and undefined are withheld, and an empty record spends nothing", async () => {
  const server = await Collector.start();
  const client = await readyOf(server.url);
  expect(await client.record({ mood: null, walked: undefined })).toEqual({
    taken: [],
    dropped: {},
    invalid: [],
  });
  expect((await client.record({ mood: "good" })).taken).toEqual(["mood"]);
});

test("a sampled record reports what was drawn, whatever is answered, also after a reload", async () => {
  const half = 2n ** 63n;
  const server = await Collector.start(planOf({ chances: [half, half] }));
  const store = fresh();
  const options = { store, vouched: () => true };
  const first = await readyOf(server.url, options);
  const { taken, dropped } = await first.record({ mood: "good", walked: 3 });
  expect(taken).toHaveLength(1);
  expect(Object.values(dropped)).toEqual(["idle"]);
  await first.close(1);
  const second = await readyOf(server.url, options);
  expect((await second.record({ mood: "bad", walked: 4 })).dropped).toEqual({
    ...dropped,
    [taken[0]!]: "spent",
  });
});

test("the app's agreement with the plan inside works before a server was ever reached", async () => {
  const agreement = agreementOn(planOf());
  const client = clientOf(NOWHERE, { agreement });
  expect(await client.waitReady()).toBe(true);
  expect((await client.record({ mood: "good" })).taken).toEqual(["mood"]);
  expect(await client.flush(300)).toBe(false);
  expect((await client.delivery()).lastError).toMatch(
    "nothing listens at the server at 127.0.0.1:50009",
  );
  expect((await client.status()).transport).toMatch("nothing listens");
  expect(await client.counters()).toEqual({ recorded: 1 });
  expect([client.level, client.plan.revision]).toEqual(["strict", agreement.revision]);
});

test.each<[string, Partial<Agreement>, RegExp]>([
  [
    "domain",
    { domains: { mood: ["bad", "good"], walked: [0, 20] } },
    /domains\["mood"\] is \["bad","so-so","good"\]/,
  ],
  [
    "range",
    { domains: { mood: MOODS, walked: [0, 21] } },
    /domains\["walked"\] is \[0,20\], the app expects \[0,21\]/,
  ],
  [
    "attribute",
    { domains: { mood: MOODS } },
    /domains\["walked"\] is \[0,20\], the app expects absent/,
  ],
  ["level", { levels: { strict: 1, loose: 3 } }, /levels\["loose"\] is 4, the app expects 3/],
  ["default", { defaultLevel: "loose" }, /defaultLevel is "strict", the app expects "loose"/],
  ["period", { period: "P1W" }, /period is "P1D", the app expects "P1W"/],
  ["changes", { mayTellChanges: ["mood"] }, /mayTellChanges is \[\], the app expects \["mood"\]/],
  ["revision", { revision: "0".repeat(64) }, /revision is "[0-9a-f]{64}", the app expects "0{64}"/],
  ["base64", { plan: "?" }, /no base64/],
])("a plan that differs from the agreement in its %s is refused", async (_, more, message) => {
  const client = clientOf(NOWHERE, { agreement: agreementOn(planOf(), more) });
  expect(await client.status()).toMatchObject({ reason: "plan_refused", detail: message });
  expect((await client.record({ mood: "good" })).dropped).toEqual({ mood: "plan_refused" });
});

test("the first plan is kept and any other refused, also after a reload", async () => {
  const server = await Collector.start();
  const store = fresh();
  const clock = new Clock();
  const options = {
    store,
    vouched: () => true,
    clock: clock.read,
    delivery: { ...QUICK, planAge: 1000 },
  };
  const first = await readyOf(server.url, options);
  server.plan = planOf({ title: "another" });
  await until(async () => {
    clock.now += 1000;
    await first.flush();
    return (await first.status()).detail !== "";
  });
  expect((await first.status()).detail).toMatch("changed on the server");
  await first.close(1);
  const second = await readyOf(server.url, options);
  expect(second.plan.title).toBe("");
});

test("an app that ships a revision takes that plan over the one kept, from the next period on", async () => {
  const server = await Collector.start();
  const store = fresh();
  const clock = new Clock();
  const options = { store, vouched: () => true, clock: clock.read };
  const first = await readyOf(server.url, options);
  await first.record({ mood: "good" });
  await first.close();
  const revision = revisionOf((server.plan = planOf({ title: "another" })));
  const second = clientOf(server.url, { ...options, revision });
  await until(async () => (await second.status()).reason === "plan_changed");
  expect((await second.record({ walked: 1 })).dropped).toEqual({ walked: "plan_changed" });
  clock.now += DAY;
  server.serverTime += DAY / 1000;
  expect((await second.record({ walked: 1 })).taken).toEqual(["walked"]);
  expect((await second.spendings()).map(({ life }) => life)).toEqual([0.5, 0.5]);
  const wrong = clientOf(server.url, { ...options, store: fresh(), revision: "0".repeat(64) });
  expect(await wrong.waitReady()).toBe(false);
  expect(await wrong.status()).toMatchObject({
    reason: "plan_refused",
    detail: /expected revision 0{64}/,
  });
});

test("a plan that costs more than the app allows is refused, at whichever level", async () => {
  const server = await Collector.start();
  for (const [options, message] of [
    [{ epsilon: 0.5 }, /would spend epsilon 1, and the app allows epsilon: 0.5/],
    [{ epsilon: 2, level: "loose" }, /would spend epsilon 4/],
    [{ level: "none" }, /level must be one of strict, loose, got "none"/],
    [{ caps: { attribute: { mood: 0.1 } } }, /above the cap of 0.1/],
    [{ caps: { attributeLife: { weather: 1 } } }, /a cap of "weather"/],
    [{ withhold: ["weather"] }, /has no attribute "weather"/],
    [{ survey: "other" }, /asked for the survey "other", got "daily"/],
  ] as const) {
    const client = clientOf(server.url, options);
    expect(await client.waitReady()).toBe(false);
    expect(await client.status()).toMatchObject({ reason: "plan_refused", detail: message });
  }
});

test("without a default somebody must choose a level, and a plan that nobody could answer is refused", async () => {
  const server = await Collector.start(planOf({ defaultLevel: "" }));
  const client = clientOf(server.url);
  expect(await client.waitReady(500)).toBe(false);
  expect(await client.status()).toMatchObject({
    reason: "plan_refused",
    detail: /no default level/,
  });
  const ann = client.person("ann", { level: "strict" });
  await ann.grant();
  expect((await ann.record({ mood: "good" })).taken).toEqual(["mood"]);
  const poor = clientOf(server.url, { epsilon: 0.1 });
  await poor.waitReady(500);
  expect(await poor.status()).toMatchObject({
    reason: "plan_refused",
    detail: /nobody could answer/,
  });
});

test("values may be revealed, and changes told, only where the app says so", async () => {
  const memoised = planOf({
    attributes: [categorical("mood", MOODS, { memo: 1 })],
    mechanisms: (_, epsilon) => [krr(3, epsilon)],
  });
  const server = await Collector.start(memoised);
  const client = clientOf(server.url);
  await client.waitReady(500);
  expect(await client.status()).toMatchObject({
    reason: "plan_refused",
    detail: /pass mayTellChanges: \["mood"\]/,
  });
  const allowed = clientOf(server.url, { mayTellChanges: ["mood"] });
  expect(await allowed.waitReady()).toBe(true);
});

test("the same answer is the same report every day and costs once; a new one costs once more", async () => {
  const attributes = [categorical("mood", MOODS, { memo: 1 })];
  const server = await Collector.start(
    planOf({ attributes, levels: { only: 1 }, mechanisms: (_, epsilon) => [krr(3, epsilon)] }),
  );
  const clock = new Clock();
  const store = fresh();
  const options = { mayTellChanges: ["mood"], clock: clock.read, store, vouched: () => true };
  const codes: number[] = [];
  for (const mood of ["good", "good", "bad", "good", "elsewhere", "bad", "elsewhere"]) {
    const client = await readyOf(server.url, options);
    expect((await client.record({ mood })).taken).toEqual(["mood"]);
    codes.push((await client.outbox()).reports[0]!.columns[0]!.codes[0]!);
    expect(await client.close()).toBe(true);
    clock.now += DAY;
    server.serverTime += DAY / 1000;
  }
  expect([codes[1], codes[3]]).toEqual([codes[0], codes[0]]);
  expect([codes[5], codes[6]]).toEqual([codes[2], codes[4]]);
  const client = await readyOf(server.url, options);
  const [spending] = await client.spendings();
  expect(spending!.reports).toBe(2);
});

test("a cap for life stops new memos and not old ones: a random value is reported instead", async () => {
  const attributes = [categorical("mood", MOODS, { memo: 1 })];
  const server = await Collector.start(
    planOf({ attributes, levels: { only: 1 }, mechanisms: (_, epsilon) => [krr(3, epsilon)] }),
  );
  const clock = new Clock();
  const client = await readyOf(server.url, {
    mayTellChanges: ["mood"],
    clock: clock.read,
    caps: { life: 1 },
  });
  for (const mood of ["good", "bad", "so-so", "good"]) {
    expect((await client.record({ mood })).taken).toEqual(["mood"]);
    clock.now += DAY;
    server.serverTime += DAY / 1000;
    await client.flush();
  }
  const codes = (await client.outbox()).sent.map(({ batch }) => batch.columns[0]!.codes[0]);
  expect(codes).toHaveLength(4);
  expect([codes[3], codes[2]]).toEqual([codes[0], codes[1]]); // both new ones are the blank memo
  expect((await client.spendings())[0]).toMatchObject({ reports: 1, left: expect.closeTo(0, 9) });
});

test("which values have a memo stands in the ledger under hashes only", async () => {
  const attributes = [categorical("mood", MOODS, { memo: 1 })];
  const server = await Collector.start(
    planOf({ attributes, levels: { only: 1 }, mechanisms: (_, epsilon) => [krr(3, epsilon)] }),
  );
  const keys: string[] = [];
  for (let i = 0; i < 2; i++) {
    const store = new MemoryStore();
    const client = await readyOf(server.url, { mayTellChanges: ["mood"], store });
    await client.record({ mood: "so-so" });
    const kept = await store.run(() => list("memos/"));
    keys.push(...kept.map(([key]) => key.split("/").at(-1)!).filter((key) => key !== "device"));
  }
  expect(keys).toHaveLength(2);
  expect(keys[0]).not.toBe(keys[1]); // each ledger has a salt of its own
  for (const key of keys) expect(key).toMatch(/^[0-9a-f]{32}$/);
});

/** Let a client hear the server's time, now that of its clock, and wait until it takes an answer. */
async function takesLater(server: Collector, client: Client, clock: Clock): Promise<void> {
  server.serverTime = clock.now / 1000;
  await until(async () => (await client.record({ mood: "good" })).taken.length === 1);
}

test("a new profile takes nothing before a period that begins more than a day after it was made", async () => {
  const server = await Collector.start();
  const clock = new Clock();
  const client = clientOf(server.url, { store: fresh(), clock: clock.read });
  await until(async () => (await client.status()).reason === "new_ledger");
  expect((await client.record({ mood: "good" })).dropped).toEqual({ mood: "new_ledger" });
  clock.now += DAY;
  expect((await client.record({ mood: "good" })).dropped).toEqual({ mood: "new_ledger" });
  clock.now += DAY;
  await takesLater(server, client, clock);
});

test("a period that was answered early is not answered again after the ledger was cleared", async () => {
  const server = await Collector.start();
  const name = `early ${made++}`;
  const clock = new Clock();
  const options = { clock: clock.read, agreement: agreementOn(planOf()) };
  const make = () => clientOf(server.url, { ...options, store: new IndexedDbStore(name) });
  const first = make();
  await until(async () => /may have spent/.test((await first.status()).detail));
  clock.now += 2 * DAY;
  server.serverTime = clock.now / 1000 - 13 * 3600; // the clock is ahead, in the server's tomorrow
  await until(async () => (await first.record({ mood: "good" })).taken.length === 1);
  expect(await first.flush()).toBe(true);
  await first.close();
  await new Promise((resolve) => {
    indexedDB.deleteDatabase(name).onsuccess = resolve;
  });
  clock.now -= 13 * 3600e3; // it is put right
  const second = make();
  await until(async () => /may have spent/.test((await second.status()).detail));
  clock.now += 13 * 3600e3;
  server.serverTime = clock.now / 1000;
  expect((await second.record({ mood: "bad" })).dropped).toEqual({ mood: "new_ledger" });
  clock.now += 2 * DAY;
  await takesLater(server, second, clock);
  expect(await second.flush()).toBe(true);
  expect(server.batches.map(({ batch }) => batch.period)).toEqual(["2026-01-03", "2026-01-05"]);
});

test("a trusted clock that is put back opens no new ledger", async () => {
  const server = await Collector.start();
  server.serverTime = 0; // it does not tell
  const clock = new Clock(NOON - 10 * DAY);
  const store = fresh();
  for (let page = 0; page < 2; page++) {
    const client = clientOf(server.url, { store, clock: clock.read });
    await until(async () => (await client.status()).reason === "new_ledger");
    await client.trustClock();
    expect((await client.record({ mood: "good" })).dropped).toEqual({ mood: "new_ledger" });
    clock.now = NOON;
    await client.trustClock();
    expect((await client.record({ mood: "good" })).dropped).toEqual({ mood: "new_ledger" });
    await client.close(1);
  }
});

test("a new profile never counts where something counts for life, unless the app vouches", async () => {
  const once = planOf({ period: "" });
  const server = await Collector.start(once);
  const clock = new Clock();
  const client = clientOf(server.url, { store: fresh(), clock: clock.read });
  await until(async () => (await client.status()).reason === "lost_ledger");
  clock.now += 400 * DAY;
  server.serverTime += 400 * (DAY / 1000);
  expect((await client.record({ mood: "good" })).dropped).toEqual({ mood: "lost_ledger" });
  server.plan = planOf();
  const capped = clientOf(server.url, { store: fresh(), caps: { life: 10 } });
  await until(async () => (await capped.status()).reason === "lost_ledger");
  const asked: string[] = [];
  const vouched = async (name: string): Promise<boolean> => asked.push(name) > 0 && name !== "bob";
  const trusted = await readyOf(server.url, { store: fresh(), caps: { life: 10 }, vouched });
  expect((await trusted.record({ mood: "good" })).taken).toEqual(["mood"]);
  const bob = trusted.person("bob");
  await bob.grant();
  expect((await bob.record({ mood: "good" })).dropped).toEqual({ mood: "lost_ledger" });
  expect([...new Set(asked)]).toHaveLength(asked.length);
});

test("a function that vouches by throwing, or by anything but true, vouches for nothing", async () => {
  const server = await Collector.start();
  for (const vouched of [() => 1 as never, () => Promise.reject(new Error("no"))]) {
    const client = clientOf(server.url, { store: fresh(), vouched });
    await until(async () => (await client.status()).reason === "new_ledger");
  }
});

test("a profile that was vouched for stays so after a reload", async () => {
  const server = await Collector.start(planOf({ period: "" }));
  const store = fresh();
  const first = await readyOf(server.url, { store, vouched: () => true });
  await first.record({ mood: "good" });
  await first.close();
  const second = await readyOf(server.url, { store });
  expect((await second.record({ mood: "good", walked: 1 })).dropped).toEqual({ mood: "spent" });
});

test("storage that is cleared while a page is open is a lost ledger, whatever the app vouches", async () => {
  const server = await Collector.start();
  const name = `cleared ${made++}`;
  const clock = new Clock();
  const client = await readyOf(server.url, {
    store: new IndexedDbStore(name),
    clock: clock.read,
    vouched: () => true,
  });
  expect((await client.record({ mood: "good" })).taken).toEqual(["mood"]);
  await client.flush();
  await new Promise((resolve) => {
    indexedDB.deleteDatabase(name).onsuccess = resolve;
  });
  expect((await client.record({ walked: 1 })).dropped).toEqual({ walked: "no_consent" });
  await client.grant();
  await until(async () => (await client.status()).reason === "new_ledger");
  expect((await client.record({ mood: "good", walked: 1 })).taken).toEqual([]);
  clock.now += 2 * DAY;
  await takesLater(server, client, clock);
});

test("a ledger that is cleared just after the server confirmed it is a lost one, too", async () => {
  const server = await Collector.start();
  const name = `cleared ${made++}`;
  const client = clientOf(server.url, {
    store: new IndexedDbStore(name),
    consent: false,
    agreement: agreementOn(planOf()),
    vouched: () => true,
  });
  const other = client.person("bob", { level: "none such" });
  server.answers = (_, response) => !!response.destroy();
  await client.grant();
  await other.grant();
  expect((await client.record({ mood: "good" })).taken).toEqual(["mood"]);
  server.answers = () => false;
  await until(() => client.flush(1000)); // which tells the server's time
  expect((await other.status()).reason).toBe("plan_refused"); // and reads the ledger no more
  await new Promise((resolve) => {
    indexedDB.deleteDatabase(name).onsuccess = resolve;
  });
  await client.grant();
  expect((await client.record({ mood: "bad" })).taken).toEqual([]);
});

test("a clock set back shuts the ledger until it has caught up, and the server's time opens it", async () => {
  const server = await Collector.start();
  const clock = new Clock(NOON + DAY / 2);
  const client = await readyOf(server.url, { clock: clock.read });
  await client.record({ mood: "good" });
  await client.flush();
  clock.now -= 3 * DAY;
  expect((await client.status()).reason).toBe("clock");
  expect((await client.record({ mood: "good" })).dropped).toEqual({ mood: "clock" });
  await client.trustClock();
  expect((await client.record({ mood: "good" })).taken).toEqual(["mood"]);
  clock.now += 3 * DAY;
  expect((await client.record({ mood: "good" })).dropped).toEqual({ mood: "clock" });
});

test.each<[string, () => unknown]>([
  [
    "throws",
    () => {
      throw new Error("no");
    },
  ],
  ["returns no number", () => new Date()],
  ["returns NaN", () => Number.NaN],
  ["returns a bigint", () => 10n],
  ["returns the first time of all", () => -8.64e15],
  ["returns the last time of all", () => 8.64e15],
  ["returns a time beyond all calendars", () => 9e15],
  ["returns the year 1", () => Date.parse("0001-01-01T00:00:00Z")],
  ["returns the year 999", () => Date.parse("0999-12-31T23:59:59Z")],
  ["returns the year 9999", () => Date.parse("9999-12-31T23:59:59Z")],
])("a clock that %s takes nothing, and is said", async (_, clock) => {
  const agreement = agreementOn(planOf({ period: "P1Y" }), { period: "P1Y" });
  const client = clientOf(NOWHERE, { clock: clock as () => number, agreement });
  await client.grant();
  expect((await client.status()).reason).toBe("clock");
  expect((await client.record({ mood: "good" })).dropped).toEqual({ mood: "clock" });
  expect(await client.spendings()).toEqual([]);
  expect((await client.delivery()).lastSuccess).toBeUndefined();
  expect(await client.waitReady(10)).toBe(false);
  await expect(client.trustClock()).rejects.toThrow(/clock/);
});

test.each(["PT1H", "P1D", "P1W", "P1M", "P1Y"])(
  "clocks at their ends are taken, in periods of %s",
  async (period) => {
    const agreement = agreementOn(planOf({ period }), { period });
    for (const [from, to] of [
      ["1001-01-01T00:00:00Z", "1002-06-01T00:00:00Z"],
      ["9997-01-01T00:00:00Z", "9998-12-31T23:59:59Z"],
    ]) {
      const clock = new Clock();
      clock.now = Date.parse(from!) + 0.5; // clocks may have parts of milliseconds
      const client = clientOf(NOWHERE, {
        clock: clock.read,
        agreement,
        vouched: () => true,
        caps: { life: 1.5, until: "9999" },
      });
      expect((await client.record({ mood: "good" })).taken).toEqual(["mood"]);
      expect((await client.spendings()).length).toBe(2);
      clock.now = Date.parse(to!);
      expect((await client.status()).ready).toBe(true);
      await client.record({ mood: "good" });
      expect((await client.status()).ready).toBe(true);
      expect((await client.spendings()).length).toBe(2);
    }
  },
);

test("a storage that fails drops answers, says so, and recovers", async () => {
  const server = await Collector.start();
  const store = new MemoryStore();
  const client = await readyOf(server.url, { store });
  const { run } = store;
  vi.spyOn(store, "run").mockImplementation(() =>
    Promise.reject(new DOMException("full of 'good'", "QuotaExceededError")),
  );
  expect((await client.record({ mood: "good" })).dropped).toEqual({ mood: "disk" });
  expect(await client.status()).toMatchObject({
    reason: "disk",
    detail: "the ledger cannot be used: QuotaExceededError",
  });
  expect(await client.outbox()).toEqual({ reports: [], batches: [], sent: [] });
  await expect(client.setCaps({ life: 1 })).rejects.toMatchObject({ name: "StorageFailed" });
  vi.mocked(store.run).mockImplementation(run);
  expect((await client.record({ mood: "good" })).taken).toEqual(["mood"]);
});

test("a transaction that fails half-way spends nothing and queues nothing", async () => {
  const server = await Collector.start();
  const store = new MemoryStore();
  const client = await readyOf(server.url, { store });
  const run = store.run.bind(store);
  for (let failing = 0; failing < 4; failing++) {
    const spy = vi.spyOn(store, "run").mockImplementation((work) => {
      let puts = 0;
      return run(function* (): Work<any> {
        const steps = work();
        let step = steps.next();
        while (!step.done) {
          if (step.value.op === "put" && puts++ === failing)
            throw new DOMException("", "AbortError");
          step = steps.next(yield step.value);
        }
        return step.value;
      });
    });
    expect((await client.record({ mood: "good", walked: 1 })).taken.length).toBe(
      failing < 3 ? 0 : 2,
    );
    spy.mockRestore();
    const answered = (await client.spendings()).map((each) => each.answered);
    expect(answered).toEqual(failing < 3 ? [false, false] : [true, true]);
    expect((await client.outbox()).reports).toHaveLength(failing < 3 ? 0 : 1);
  }
});

test("consent is revoked at once even if it cannot be noted, and a grant does not undo it", async () => {
  const server = await Collector.start();
  const store = new MemoryStore();
  const client = await readyOf(server.url, { store, delivery: { ...QUICK, batchAge: 60_000 } });
  await client.record({ mood: "good" });
  const spy = vi
    .spyOn(store, "run")
    .mockImplementation(() => Promise.reject(new DOMException("", "UnknownError")));
  await client.revoke();
  spy.mockRestore();
  await client.grant();
  expect(await client.flush()).toBe(true);
  expect(server.batches).toEqual([]);
  expect((await client.outbox()).reports).toEqual([]);
  expect((await client.status()).ready).toBe(true);
});

test("a person's name may be as long as it likes", async () => {
  const server = await Collector.start();
  const client = await readyOf(server.url);
  const person = client.person("x".repeat(300_000));
  await person.grant();
  expect((await person.record({ mood: "good" })).taken).toEqual(["mood"]);
  await person.revoke();
  expect((await person.status()).reason).toBe("no_consent");
  expect((await client.record({ mood: "good" })).taken).toEqual(["mood"]);
});

test("a change of one person that cannot be noted holds up no other person", async () => {
  const server = await Collector.start();
  const store = new MemoryStore();
  const delivery = { ...QUICK, batchAge: 60_000 };
  const client = await readyOf(server.url, { store, delivery });
  const [ann, bob] = [client.person("ann"), client.person("bob")];
  for (const each of [ann, bob]) {
    await each.grant();
    expect((await each.record({ mood: "good" })).taken).toEqual(["mood"]);
  }
  const reports = await store.run(() => list<{ person: string }>("reports/"));
  const broken = `people/${reports[0]![1].person}`;
  const run = store.run.bind(store);
  vi.spyOn(store, "run").mockImplementation((work) =>
    run(function* (): Work<any> {
      const steps = work();
      let step = steps.next();
      while (!step.done) {
        if (step.value.op === "put" && step.value.key === broken) throw new DOMException();
        step = steps.next(yield step.value);
      }
      return step.value;
    }),
  );
  await ann.revoke();
  await bob.revoke();
  expect((await client.outbox()).reports).toHaveLength(1); // Ann's, which is not sent meanwhile
  expect(await client.flush(200)).toBe(false);
  expect(server.batches).toEqual([]);
  expect((await client.record({ mood: "good" })).taken).toEqual(["mood"]);
  expect((await ann.record({ walked: 1 })).dropped).toEqual({ walked: "no_consent" });
  vi.restoreAllMocks();
  expect(await client.flush(5000)).toBe(true);
  expect(server.batches.map(({ batch }) => batch.rows)).toEqual([1]);
});

test("a disabled client takes and sends nothing, and touches no storage", async () => {
  const store = new MemoryStore();
  const run = vi.spyOn(store, "run");
  const client = clientOf(NOWHERE, { store, disabled: true });
  expect((await client.record({ mood: "good" })).dropped).toEqual({ mood: "disabled" });
  expect([(await client.status()).reason, await client.flush(), await client.close()]).toEqual([
    "disabled",
    true,
    true,
  ]);
  expect(run).not.toHaveBeenCalled();
});

test("what a client had in memory when it ended is counted as lost", async () => {
  const drops: unknown[] = [];
  const client = clientOf(NOWHERE, {
    agreement: agreementOn(planOf()),
    onDrop: (...each) => drops.push(each),
  });
  await client.record({ mood: "good" });
  expect(await client.close(50)).toBe(false);
  expect(await client.close(50)).toBe(false);
  expect(drops).toEqual([["lost", 1]]);
  expect((await client.status()).reason).toBe("closed");
  expect(await client.counters()).toEqual({ recorded: 1, lost: 1 });
});

test("making a client takes less than a millisecond of the thread, once the code is warm", () => {
  const times: number[] = [];
  for (let i = 0; i < 50; i++) {
    const began = performance.now();
    const client = new Client({
      url: NOWHERE,
      survey: "daily",
      epsilon: 1,
      store: new MemoryStore(),
    });
    times.push(performance.now() - began);
    void client.close(1);
  }
  expect(times.sort((a, b) => a - b)[25]).toBeLessThan(1);
});

const GOOD: ClientOptions = {
  url: "https://hearsay.example",
  survey: "daily",
  epsilon: 1,
  store: new MemoryStore(),
};

test.each<[string, Record<string, unknown>, RegExp]>([
  ["no URL", { url: "hearsay.example" }, /url must be the server's/],
  ["a number for a URL", { url: 1 }, /url must be the server's/],
  ["another scheme", { url: "ftp://hearsay.example" }, /url must be the server's/],
  ["a password in the URL", { url: "https://a:b@hearsay.example" }, /url must be the server's/],
  ["a query", { url: "https://hearsay.example/?a" }, /neither a query nor a fragment/],
  ["http off loopback", { url: "http://hearsay.example" }, /use https, or pass insecure/],
  ["http to a name that begins like loopback", { url: "http://127.0.0.1.example" }, /use https/],
  ["no survey", { survey: undefined }, /give agreement, .* or survey/],
  ["an empty survey", { survey: "" }, /give agreement/],
  ["a survey that is no text", { survey: "\ud800" }, /no valid Unicode/],
  ["no epsilon", { epsilon: undefined }, /give epsilon/],
  ["epsilon 0", { epsilon: 0 }, /epsilon must be finite and > 0, got 0/],
  ["epsilon as text", { epsilon: "1" }, /epsilon must be finite and > 0, got "1"/],
  ["a revision that is none", { revision: "ABC" }, /revision must be 64/],
  [
    "an agreement and epsilon",
    { agreement: agreementOn(planOf()), survey: undefined },
    /leave them out/,
  ],
  ["a misspelt option", { mayreveal: {} }, /a client has no "mayreveal"; it has url/],
  ["mayReveal as a list", { mayReveal: ["a"] }, /expected an object/],
  [
    "mayReveal with a text",
    { mayReveal: { a: "no" } },
    /mayReveal\["a"\] must be a list of names, got "no"/,
  ],
  ["mayTellChanges as text", { mayTellChanges: "a" }, /mayTellChanges must be a list of names/],
  ["withhold as text", { withhold: "a" }, /withhold must be a list of names/],
  ["a level that is no name", { level: 1 }, /a level is a name, got 1/],
  ["levels that are no names", { levels: { a: 1 } }, /a level is a name, got 1/],
  ["a negative cap", { caps: { life: -1 } }, /finite and >= 0/],
  ["a misspelt cap", { caps: { Life: 1 } }, /caps has no "Life"/],
  ["a delivery of 0", { delivery: { timeout: 0 } }, /timeout must be > 0/],
  ["a misspelt delivery", { delivery: { batchrows: 1 } }, /delivery has no "batchrows"/],
  ["a token that is a number", { token: 1 }, /token must be a function/],
  ["consent that is no boolean", { consent: "yes" }, /consent must be a boolean/],
  ["a vouched that is no function", { vouched: true }, /vouched must be a function/],
  ["a store without run", { store: {} }, /store must have the method run/],
])("a client with %s is refused at once", (_, wrong, message) => {
  const make = () => new Client({ ...GOOD, ...wrong } as ClientOptions);
  expect(make).toThrow(message);
  expect(make).toThrow(expect.objectContaining({ name: "InvalidInput" }));
});

test.each([undefined, null, "https://hearsay.example", 1])(
  "a client of %o is refused at once",
  (options) => {
    expect(() => new Client(options as never)).toThrow(
      /a client is given as an object of url, survey/,
    );
  },
);

test("times may be as long as a number can be", async () => {
  const server = await Collector.start();
  const long = {
    batchAge: Infinity,
    timeout: Infinity,
    longestWait: 1e15,
    firstWait: 20,
    planAge: Infinity,
  };
  const client = await readyOf(server.url, {
    delivery: long,
    store: new IndexedDbStore(`long ${made++}`, Infinity),
    vouched: () => true,
  });
  expect((await client.record({ mood: "good" })).taken).toEqual(["mood"]);
  await new Promise((resolve) => setTimeout(resolve, 50));
  expect(server.batches).toEqual([]);
  expect(await client.flush(Infinity)).toBe(true);
});

test("loopback may be spoken to without TLS, and any host where the app says so", () => {
  for (const url of [
    "http://localhost:1",
    "http://127.0.0.1",
    "http://127.1.2.3:9",
    "http://[::1]:9",
    "https://x",
  ]) {
    expect(() => new Client({ ...GOOD, url, disabled: true })).not.toThrow();
  }
  expect(
    () => new Client({ ...GOOD, url: "http://x", insecure: true, disabled: true }),
  ).not.toThrow();
});

test("in Node a store must be given; where there is IndexedDB, it is the default", () => {
  const { store: _, ...bare } = GOOD;
  expect(() => new Client({ ...bare, disabled: true })).not.toThrow(); // the fake one is there
  const there = globalThis.indexedDB;
  Reflect.deleteProperty(globalThis, "indexedDB");
  try {
    expect(() => new Client(bare)).toThrow(/give store, such as new MemoryStore\(\)/);
  } finally {
    globalThis.indexedDB = there;
  }
});

test("a person who is made anew for each request leaves nothing in memory", async () => {
  setFlagsFromString("--expose-gc");
  const collect: () => void = runInNewContext("gc");
  const server = await Collector.start();
  const client = await readyOf(server.url);
  const asks = async (): Promise<number> => {
    for (let i = 0; i < 2000; i++) await client.person("ann", { level: "strict" }).status();
    collect();
    return process.memoryUsage().heapUsed;
  };
  await asks();
  const before = await asks();
  expect(((await asks()) - before) / 2000).toBeLessThan(300); // bytes; the terms of this plan take 900
});

test("a person needs a name, and only known choices", () => {
  const client = new Client({ ...GOOD, disabled: true });
  expect(() => client.person("")).toThrow("a person needs a name");
  expect(() => client.person("ann", { lvl: "strict" } as never)).toThrow('a person has no "lvl"');
});

test("a number of no use as an attribute's bound is no obstacle to others", async () => {
  const server = await Collector.start(
    planOf({ attributes: [numeric("a", -1e300, 1e300), categorical("b", ["x", "y"])] }),
  );
  const client = await readyOf(server.url);
  expect((await client.record({ a: 1e299, b: "x" })).taken).toEqual(["a", "b"]);
});

test("what a refused plan says is told on one line, and cut short", async () => {
  const told = vi.spyOn(console, "error").mockImplementation(() => {});
  const title = `\u009b31m\u202e${"a".repeat(100_000)}`;
  const client = clientOf((await Collector.start(planOf({ title }))).url);
  const { detail } = await vi.waitFor(async () => {
    expect(await client.waitReady(50)).toBe(false);
    const status = await client.status();
    expect(status.reason).toBe("plan_refused");
    return status;
  }, 10_000);
  for (const words of [detail, ...told.mock.calls.map(([first]) => String(first))]) {
    expect(words).toMatch(/title/);
    expect(words).not.toMatch(/[\p{Cc}\p{Cf}]/u);
    expect(words.length).toBeLessThan(1100);
  }
});
