/** A device splits its record between two servers that it was told of, and with nobody else. */

import { readFileSync } from "node:fs";
import { AEAD_AES_128_GCM, CipherSuite, KDF_HKDF_SHA256, KEM_DHKEM_X25519_HKDF_SHA256 } from "hpke";
import { expect, test, vi } from "vitest";
import { type Client, type ClientOptions, MemoryStore } from "../../src/index.js";
import { type Plan, parsePlan } from "../../src/plans/plan.js";
import type { Batch } from "../../src/plans/protobuf.js";
import { Preview } from "../../src/preview.js";
import { infoOf } from "../../src/sealed/shares.js";
import type { Work } from "../../src/storage/store.js";
import {
  chain,
  categorical,
  Clock,
  clientOf,
  Collector,
  DAY,
  NOWHERE,
  planOf,
  revisionOf,
  until,
} from "../kit.js";

const { plans, records } = JSON.parse(
  readFileSync(new URL("../../../../protos/conformance/split.json", import.meta.url), "utf8"),
);
const unhex = (text: string): Uint8Array => new Uint8Array(Buffer.from(text, "hex"));
const PLAN = unhex(plans[0].plan);
const { privates } = records[0];
const SCALE = 64;

const suite = new CipherSuite(KEM_DHKEM_X25519_HKDF_SHA256, KDF_HKDF_SHA256, AEAD_AES_128_GCM);
const PARSED: Plan = await parsePlan(PLAN);
const HELPER = Buffer.from(PARSED.twoServers!.helperKey).toString("hex");

const AGREEMENT = {
  survey: "commute",
  revision: revisionOf(PLAN),
  period: "P1D",
  domains: { way: ["bus", "train", "car"], minutes: [0, 120] },
  levels: { standard: 1 },
  defaultLevel: "",
  plan: Buffer.from(PLAN).toString("base64"),
};

function splitting(url: string, options: Partial<ClientOptions> = {}): Client {
  return clientOf(url, {
    survey: "commute",
    level: "standard",
    epsilon: 1,
    helperKey: HELPER,
    ...options,
  });
}

async function opened(batch: Batch): Promise<{ seed: Uint8Array; rest: Uint8Array }> {
  const { codes } = batch.columns[0]!;
  const share = async (role: "leader" | "helper", sealed: Uint8Array): Promise<Uint8Array> => {
    const own = await suite.DeserializePrivateKey(unhex(privates[role]), true);
    const info = infoOf(role, PARSED, batch.period, batch.id);
    return suite.Open(own, sealed.slice(0, 32), sealed.slice(32), { info });
  };
  return {
    seed: await share("leader", codes.slice(0, 80)),
    rest: await share("helper", codes.slice(80)),
  };
}

/** Return the cells that both servers together have of a record. */
async function cellsOf(batch: Batch): Promise<number[]> {
  const { seed, rest } = await opened(batch);
  const key = await crypto.subtle.importKey("raw", seed.slice(), "AES-CTR", false, ["encrypt"]);
  const counted = { name: "AES-CTR", counter: new Uint8Array(16), length: 128 };
  const stream = await crypto.subtle.encrypt(counted, key, new Uint8Array(rest.length));
  const [a, b] = [new Uint32Array(stream), new Uint32Array(rest.slice().buffer)];
  return Array.from(a, (word, i) => (word + b[i]!) | 0);
}

test("what devices send sums up to their answers and the noise", async () => {
  const collector = await Collector.start(PLAN);
  const client = splitting(collector.url, { consent: false });
  const people = 60;
  for (let i = 0; i < people; i++) {
    const person = client.person(`person ${i}`);
    await person.grant();
    if (!i) expect(await person.waitReady(5000)).toBe(true);
    const recorded = await person.record({ way: i % 3 ? "bus" : "car", minutes: 30 });
    expect(recorded.taken).toEqual(["way", "minutes"]);
  }
  while (!(await client.flush(5000)));
  const batches = collector.batches.map(({ batch }) => batch);
  expect(new Set(batches.map(({ id }) => `${id}`)).size).toBe(people);
  const total = [0, 0, 0, 0, 0];
  for (const batch of batches) {
    expect([batch.rows, batch.columns[0]!.attribute]).toEqual([1, "way+minutes"]);
    expect(batch.columns[0]!.codes.length).toBe(32 + 48 + 5 * 4 + 48);
    for (const [i, cell] of (await cellsOf(batch)).entries()) total[i]! += cell;
  }
  const { n, d } = PARSED.twoServers!.noise.variance;
  const error = 6 * Math.sqrt((people * Number(n)) / Number(d)) + 6 * SCALE * 4; // 4: rounding of numbers
  const exact = [40, 0, 20, 15, 45].map((count) => count * SCALE);
  for (const [i, cell] of total.entries()) expect(Math.abs(cell - exact[i]!)).toBeLessThan(error);
  expect(total).not.toEqual(exact);
});

test("the id of a split record is of the platform's generator", async () => {
  const collector = await Collector.start(PLAN);
  const drawn = vi.spyOn(crypto, "getRandomValues");
  const client = splitting(collector.url);
  expect(await client.waitReady(5000)).toBe(true);
  await client.record({ way: "bus", minutes: 30 });
  while (!(await client.flush(5000)));
  const given = drawn.mock.results.map(({ value }) => Buffer.from(value).toString("hex"));
  expect(given).toContain(Buffer.from(collector.batches[0]!.batch.id).toString("hex"));
  drawn.mockRestore();
});

test("a record is charged once with all of epsilon, and taken once", async () => {
  const collector = await Collector.start(PLAN);
  const clock = new Clock();
  const client = splitting(collector.url, { caps: { life: 2.5 }, clock: clock.read });
  expect(await client.waitReady(5000)).toBe(true);
  expect((await client.record({ way: "bus", minutes: 10 })).taken).toEqual(["way", "minutes"]);
  expect((await client.record({ minutes: 20 })).dropped).toEqual({ minutes: "spent" });
  expect(await client.spendings()).toMatchObject(
    ["way", "minutes"].map((attribute) => ({ attribute, life: 1, left: 1.5, answered: true })),
  );
  expect(client.recordEpsilon).toBe(1);
  expect(await client.flush(2000)).toBe(true);
  for (const taken of [["way"], []]) {
    clock.now += DAY;
    collector.serverTime += DAY / 1000;
    expect((await client.record({ way: "bus" })).taken).toEqual(taken);
    expect(await client.flush(2000)).toBe(true);
  }
  expect(collector.batches.length).toBe(2);
  const { delta } = PARSED.twoServers!;
  expect(await client.spendings()).toMatchObject(
    ["way", "minutes"].map((attribute) => ({ attribute, life: 2, split: 2, delta: 2 * delta })),
  );
});

test("records that begin at once are taken once", async () => {
  const collector = await Collector.start(PLAN);
  const client = splitting(collector.url);
  expect(await client.waitReady(5000)).toBe(true);
  const all = await Promise.all([1, 2, 3].map(() => client.record({ way: "bus" })));
  expect(all.flatMap(({ taken }) => taken)).toEqual(["way"]);
});

test("an attribute that is withheld, and an answer outside the domain, leave like any other", async () => {
  const collector = await Collector.start(PLAN);
  const client = splitting(collector.url, { withhold: ["minutes"] });
  expect(await client.waitReady(5000)).toBe(true);
  const recorded = await client.record({ way: "rocket", minutes: 5 });
  expect(recorded).toEqual({ taken: ["way"], dropped: { minutes: "withheld" }, invalid: ["way"] });
  expect(await client.flush(2000)).toBe(true);
  const { batch } = collector.batches[0]!;
  expect(batch.columns[0]!.codes.length).toBe(32 + 48 + 5 * 4 + 48);
  await cellsOf(batch);
});

/** A store in memory that remembers all that was ever put into it. */
class Watched extends MemoryStore {
  readonly puts: unknown[] = [];

  override run<T>(work: () => Work<T>): Promise<T> {
    const { puts } = this;
    return super.run(function* (): Work<T> {
      const inner = work();
      let step = inner.next();
      while (!step.done) {
        if (step.value.op === "put") puts.push(step.value.value);
        step = inner.next(yield step.value);
      }
      return step.value;
    });
  }
}

test("nothing of a record is ever kept but what is sealed, which keeps its id", async () => {
  const collector = await Collector.start(PLAN);
  const store = new Watched();
  const first = splitting(collector.url, { store, delivery: { batchAge: 60_000 } });
  expect(await first.waitReady(5000)).toBe(true);
  expect((await first.record({ way: "car", minutes: 77 })).taken.length).toBe(2);
  const [waiting] = (await first.outbox()).reports;
  const second = splitting(collector.url, { store });
  expect(await second.flush(2000)).toBe(true);
  const { batch } = collector.batches[0]!;
  expect(batch).toEqual({ ...waiting!, id: batch.id });
  expect(waiting!.id).toEqual(batch.id);
  const { seed, rest } = await opened(batch);
  const kept = flat(store.puts);
  const has = (bytes: Uint8Array): boolean =>
    kept.bytes.some((each) => Buffer.from(each).includes(Buffer.from(bytes)));
  expect(has(batch.columns[0]!.codes)).toBe(true); // so this search finds things
  expect([has(seed), has(rest)]).toEqual([false, false]);
  expect(kept.others.filter((each) => each === 77 || each === "car")).toEqual([]);
  expect(Object.keys((await second.outbox()).sent)).toEqual(["0"]);
});

/** Return the arrays of bytes in values, and their other leaves. */
function flat(values: unknown): { bytes: Uint8Array[]; others: unknown[] } {
  const found = { bytes: [] as Uint8Array[], others: [] as unknown[] };
  const look = (value: unknown): void => {
    if (value instanceof Uint8Array) found.bytes.push(value);
    else if (typeof value === "object" && value !== null) Object.values(value).forEach(look);
    else found.others.push(value);
  };
  look(values);
  return found;
}

test("forgetting asks the server for the id of the record", async () => {
  const collector = await Collector.start(PLAN);
  collector.statuses.push(...Array.from({ length: 99 }, () => 4)); // not yet
  const client = splitting(collector.url);
  expect(await client.waitReady(5000)).toBe(true);
  await client.record({ way: "bus" });
  await client.flush(200);
  const { batch } = collector.batches[0]!;
  await client.revoke({ forget: true });
  await until(async () => {
    await client.flush(50);
    return collector.forgotten.length > 0;
  });
  expect(collector.forgotten).toEqual([Buffer.from(batch.id).toString("hex")]);
});

test("where memos of another survey have used up a cap for life, an empty record leaves", async () => {
  const [permanent, instantaneous] = [0.2, 0.2];
  const memos = planOf({
    name: "memos",
    levels: { only: 20 },
    attributes: [categorical("mood", ["a", "b", "c"], { memo: 64 })],
    mechanisms: () => [chain(3, 2, permanent, instantaneous)],
  });
  const [other, collector] = [await Collector.start(memos), await Collector.start(PLAN)];
  const [clock, store] = [new Clock(), new MemoryStore()];
  const more = { clock: clock.read, store };
  const first = clientOf(other.url, {
    survey: "memos",
    epsilon: 20,
    mayTellChanges: ["mood"],
    ...more,
  });
  expect(await first.waitReady(5000)).toBe(true);
  for (const mood of ["a", "b"]) {
    expect((await first.record({ mood })).taken).toEqual(["mood"]);
    clock.now += DAY;
    other.serverTime += DAY / 1000;
    collector.serverTime += DAY / 1000;
  }
  const { life } = (await first.spendings())[0]!;
  const client = splitting(collector.url, { caps: { life: life / 2 + 1.2 }, ...more });
  expect(await client.waitReady(5000)).toBe(true);
  expect((await client.record({ way: "bus" })).taken).toEqual(["way"]);
  expect((await client.spendings()).map((each) => each.life)).toEqual([0, 0]);
  expect((await client.record({ way: "bus" })).dropped).toEqual({ way: "spent" });
});

test("a plan with another helper, or without one, is refused", async () => {
  const [split, plain] = [await Collector.start(PLAN), await Collector.start()];
  const wrong = HELPER.replace(/^../, "00");
  for (const [client, why] of [
    [splitting(split.url, { helperKey: undefined! }), "helperKey is none"],
    [splitting(split.url, { helperKey: wrong }), "as the helper's operator tells it"],
    [splitting(split.url, { epsilon: 0.5 }), "would spend epsilon 1"],
    [splitting(split.url, { delta: PARSED.twoServers!.delta / 2 }), "if that is meant, pass delta"],
    [clientOf(plain.url, { helperKey: HELPER }), "leave helperKey out"],
  ] as const) {
    expect(await client.waitReady(300)).toBe(false);
    expect((await client.status()).detail).toContain(why);
    expect((await client.record({ way: "bus" })).taken).toEqual([]);
  }
  expect(() => splitting(split.url, { delta: 1 })).toThrow("delta must lie in (0, 1)");
  expect(() => splitting(split.url, { helperKey: "abc" })).toThrow("64 hexadecimal digits");
  expect(await splitting(split.url, { helperKey: HELPER.toUpperCase() }).waitReady(5000)).toBe(
    true,
  );
});

test("what waits stays where a later client names another helper", async () => {
  const collector = await Collector.start(PLAN);
  const store = new MemoryStore();
  const first = splitting(collector.url, { store, delivery: { batchAge: 60_000 } });
  expect(await first.waitReady(5000)).toBe(true);
  await first.record({ way: "bus" });
  const [waiting] = (await first.outbox()).reports;
  const second = splitting(collector.url, { store, helperKey: undefined! });
  await second.flush(200);
  expect(collector.batches).toEqual([]);
  expect(await splitting(collector.url, { store }).flush(2000)).toBe(true);
  expect(collector.batches.map(({ batch }) => batch.id)).toEqual([waiting!.id]);
});

test("what waits keeps its id while the app asks for another plan, which does not come", async () => {
  const collector = await Collector.start(PLAN);
  const store = new MemoryStore();
  const first = splitting(collector.url, { store, delivery: { batchAge: 60_000 } });
  expect(await first.waitReady(5000)).toBe(true);
  await first.record({ way: "bus" });
  const [waiting] = (await first.outbox()).reports;
  const second = splitting(collector.url, { store, revision: "ab".repeat(32) });
  expect(await second.flush(300)).toBe(false);
  expect(collector.batches).toEqual([]);
  expect(await splitting(collector.url, { store }).flush(2000)).toBe(true);
  expect(collector.batches.map(({ batch }) => batch.id)).toEqual([waiting!.id]);
});

test("what the page of first consent took stays split, though the app ships the plan", async () => {
  const collector = await Collector.start(PLAN);
  const given = {
    agreement: AGREEMENT,
    epsilon: undefined!,
    survey: undefined!,
    store: new MemoryStore(),
  };
  const first = splitting(NOWHERE, { ...given, delivery: { batchAge: 60_000 } });
  expect(await first.waitReady(5000)).toBe(true);
  for (const name of ["ann", "ben"]) {
    await first.person(name).grant();
    expect((await first.person(name).record({ way: "bus" })).taken).toEqual(["way"]);
  }
  await first.close(0);
  const second = splitting(collector.url, { ...given, helperKey: undefined! });
  expect(await second.flush(300)).toBe(false);
  expect(collector.batches).toEqual([]);
  await second.close(0);
  const third = splitting(collector.url, given);
  expect(await third.flush(2000)).toBe(true);
  expect(collector.batches.map(({ batch }) => batch.rows)).toEqual([1, 1]);
});

test("a revocation, and an end, while a record is made is kept to", async () => {
  const collector = await Collector.start(PLAN);
  const client = splitting(collector.url);
  expect(await client.waitReady(5000)).toBe(true);
  const [begun, closing] = [client.person("ann"), client.person("ben")];
  for (const person of [begun, closing]) await person.grant();
  const answered = begun.record({ way: "bus" });
  await begun.revoke();
  await begun.grant();
  expect((await answered).dropped).toEqual({ way: "no_consent" });
  expect((await begun.spendings()).map((each) => each.life)).toEqual([0, 0]);
  const late = closing.record({ way: "bus" });
  expect(await client.close(2000)).toBe(true);
  expect((await late).dropped).toEqual({ way: "closed" });
  expect(collector.batches).toEqual([]);
});

test("no preview shows a record that is split", async () => {
  await expect(Preview.of(PLAN)).rejects.toThrow("split between two servers");
});
