/** Records that are sealed go to a shuffler, and nothing of them to the collector. */

import { KEM_DHKEM_X25519_HKDF_SHA256 } from "hpke";
import { expect, test, vi } from "vitest";
import { MemoryStore } from "../../src/index.js";
import { hex, Places } from "../../src/recording/places.js";
import { put, transact } from "../../src/storage/store.js";
import { Clock, clientOf, Collector, DAY, planOf, revisionOf } from "../kit.js";

async function sealedPlan(): Promise<Uint8Array> {
  const kem = KEM_DHKEM_X25519_HKDF_SHA256();
  const { publicKey } = await kem.GenerateKeyPair(true);
  const key = await kem.SerializePublicKey(publicKey);
  return planOf({
    sealing: {
      least: 1000,
      size: 256,
      keys: [{ public: key, since: 1 }],
      rotate_days: 30,
      key_count: 1,
    },
  });
}

test("each record goes to the shuffler by itself, and as the same bytes again", async () => {
  const [collector, shuffler] = [
    await Collector.start(await sealedPlan()),
    await Collector.start(),
  ];
  shuffler.statuses.push(4); // not yet
  const client = clientOf(collector.url, { shuffler: shuffler.url, shufflerToken: "secret" });
  expect(await client.waitReady(5000)).toBe(true);
  for (const name of ["a", "b", "c"]) {
    const person = client.person(name);
    await person.grant();
    expect((await person.record({ mood: "good", walked: 3 })).taken).toEqual(["mood", "walked"]);
  }
  while (!(await client.flush(2000)));
  expect((await client.counters()).stored).toBe(3);
  const { sealed } = shuffler;
  expect(sealed.length).toBe(4);
  expect(new Set(sealed).size).toBe(3); // one of them came twice, as it was
  expect(new Set(sealed.map((record) => record.length)).size).toBe(1);
  expect(shuffler.of("SubmitSealed")[0]!.headers.authorization).toBe("Bearer secret");
  expect([collector.batches.length, collector.forgotten.length]).toEqual([0, 0]);
  expect(collector.of("GetPlan").length).toBeGreaterThan(0);
  expect(shuffler.of("GetPlan").length).toBe(0);
  await client.close();
});

test("the id of a sealed record is of the platform's generator", async () => {
  const [collector, shuffler] = [
    await Collector.start(await sealedPlan()),
    await Collector.start(),
  ];
  shuffler.statuses.push(...Array.from({ length: 99 }, () => 4)); // it stays in the outbox
  const drawn = vi.spyOn(crypto, "getRandomValues");
  const client = clientOf(collector.url, { shuffler: shuffler.url });
  expect(await client.waitReady(5000)).toBe(true);
  await client.record({ mood: "good" });
  await client.flush(200);
  const [batch] = (await client.outbox()).batches;
  const given = drawn.mock.results.map(({ value }) => hex(value));
  expect(given).toContain(hex(batch!.id));
  drawn.mockRestore();
  await client.close(0);
});

test("a sealed survey's plan is refused without a shuffler, and another one's with it", async () => {
  const [sealed, plain] = [await Collector.start(await sealedPlan()), await Collector.start()];
  const without = clientOf(sealed.url);
  const withOne = clientOf(plain.url, { shuffler: sealed.url });
  for (const [client, why] of [
    [without, "give shuffler"],
    [withOne, "leave shuffler out"],
  ] as const) {
    expect(await client.waitReady(300)).toBe(false);
    expect((await client.status()).detail).toContain(why);
    expect((await client.record({ mood: "good" })).taken).toEqual([]);
    await client.close();
  }
  expect(() => clientOf(plain.url, { shufflerToken: "secret" })).toThrow("give shuffler, too");
});

test("what waits stays where a later client names no shuffler", async () => {
  const [collector, shuffler] = [
    await Collector.start(await sealedPlan()),
    await Collector.start(),
  ];
  shuffler.statuses.push(...Array.from({ length: 99 }, () => 4));
  const store = new MemoryStore();
  const first = clientOf(collector.url, { shuffler: shuffler.url, store });
  await first.waitReady(5000);
  await first.record({ mood: "good", walked: 3 });
  expect(await first.flush(200)).toBe(false);
  await first.close(0);
  const [before] = shuffler.sealed;
  const second = clientOf(collector.url, { store });
  await second.flush(200);
  await second.close(0);
  expect(collector.batches).toEqual([]);
  shuffler.statuses.length = 0;
  const third = clientOf(collector.url, { shuffler: shuffler.url, store });
  await third.waitReady(5000);
  expect(await third.flush(2000)).toBe(true);
  expect(shuffler.sealed.at(-1)).toBe(before);
  await third.close();
});

test("what waits is not sent unsealed while the app asks for another plan, which does not come", async () => {
  const [collector, shuffler] = [
    await Collector.start(await sealedPlan()),
    await Collector.start(),
  ];
  const given = { shuffler: shuffler.url, store: new MemoryStore() };
  const first = clientOf(collector.url, { ...given, delivery: { batchAge: 60_000 } });
  await first.waitReady(5000);
  await first.record({ mood: "good", walked: 3 });
  const second = clientOf(collector.url, { ...given, revision: "ab".repeat(32) });
  expect(await second.flush(300)).toBe(false);
  expect(shuffler.sealed).toEqual([]);
  const third = clientOf(collector.url, given);
  expect(await third.flush(2000)).toBe(true);
  expect(shuffler.sealed.length).toBe(1);
  expect(Buffer.from(shuffler.sealed[0]!, "hex").toString("latin1")).not.toContain("mood");
});

test("nothing that waits sealed leaves in the clear after a release that seals nothing", async () => {
  const [collector, shuffler] = [
    await Collector.start(await sealedPlan()),
    await Collector.start(),
  ];
  shuffler.statuses.push(...Array.from({ length: 99 }, () => 4)); // not yet: all may have left
  const [store, clock] = [new MemoryStore(), new Clock()];
  const given = { store, clock: clock.read };
  const first = clientOf(collector.url, { ...given, shuffler: shuffler.url });
  await first.waitReady(5000);
  for (const name of ["ann", "ben"]) {
    await first.person(name).grant();
    await first.person(name).record({ mood: "good", walked: 3 });
  }
  expect(await first.flush(200)).toBe(false);
  await first.person("ann").revoke({ forget: true });
  await first.person("cem").grant();
  await first.person("cem").record({ mood: "bad" });
  await first.close(0);
  collector.plan = planOf();
  const release = { ...given, revision: revisionOf(collector.plan) };
  clock.now += DAY;
  collector.serverTime += DAY / 1000;
  const second = clientOf(collector.url, release);
  expect(await second.waitReady(5000)).toBe(true);
  expect((await second.record({ mood: "bad" })).taken).toEqual(["mood"]);
  expect(await second.flush(2000)).toBe(true);
  expect(collector.batches.map(({ batch }) => batch.period)).toEqual(["2026-01-02"]);
  expect((await second.outbox()).batches).toEqual([]);
});

test("what waits in the clear goes to no shuffler that a release names", async () => {
  const [collector, shuffler] = [await Collector.start(), await Collector.start()];
  const given = { store: new MemoryStore() };
  const first = clientOf(collector.url, { ...given, delivery: { batchAge: 60_000 } });
  await first.waitReady(5000);
  await first.record({ mood: "good" });
  await first.close(0);
  const second = clientOf(collector.url, { ...given, shuffler: shuffler.url });
  expect(await second.flush(300)).toBe(false);
  expect(shuffler.calls.map(({ method }) => method)).toEqual([]);
  await second.close(0);
  const third = clientOf(collector.url, given);
  expect(await third.flush(2000)).toBe(true);
  expect(collector.batches.length).toBe(1);
});

test("a page of an earlier release neither sends nor drops what a later one took", async () => {
  const clock = new Clock();
  const [old, now] = [await Collector.start(planOf({ title: "old" })), await Collector.start()];
  const given = { store: new MemoryStore(), clock: clock.read };
  const before = clientOf(old.url, { ...given, revision: revisionOf(old.plan!) });
  expect(await before.waitReady(5000)).toBe(true);
  const after = clientOf(now.url, {
    ...given,
    revision: revisionOf(now.plan!),
    delivery: { batchAge: 60_000 },
  });
  expect(await after.waitReady(5000)).toBe(true);
  expect((await after.record({ mood: "good" })).taken).toEqual(["mood"]);
  expect(await before.flush(300)).toBe(false);
  expect(old.batches).toEqual([]);
  expect((await before.counters()).refused ?? 0).toBe(0);
  expect(await after.flush(2000)).toBe(true);
  expect(now.batches.length).toBe(1);
});

test("what waits is packed by its plan where both come by another page meanwhile", async () => {
  const plan = await sealedPlan();
  const [knowing, unknowing] = [await Collector.start(plan), await Collector.start()];
  unknowing.plan = undefined;
  const shuffler = await Collector.start();
  const store = new MemoryStore();
  let isArmed = false;
  const second = clientOf(unknowing.url, {
    shuffler: shuffler.url,
    store: {
      inMemory: true,
      // The page's first look is for a plan. Another page takes its plan and an answer before the next one.
      async run(work) {
        const found = await store.run(work);
        if (!isArmed) return found;
        isArmed = false;
        const first = clientOf(knowing.url, {
          shuffler: shuffler.url,
          store,
          delivery: { batchAge: 60_000 },
        });
        expect(await first.waitReady(5000)).toBe(true);
        expect((await first.record({ mood: "good" })).taken).toEqual(["mood"]);
        await first.close(0);
        return found;
      },
    },
  });
  expect(await second.waitReady(300)).toBe(false);
  isArmed = true;
  await second.flush(2000);
  expect(isArmed).toBe(false);
  expect(await second.flush(2000)).toBe(true);
  expect(shuffler.sealed.length).toBe(1);
  expect(Buffer.from(shuffler.sealed[0]!, "hex").toString("latin1")).not.toContain("mood");
});

test("what waits in the clear is not posted to a shuffler by a page that has no plan", async () => {
  const [collector, shuffler] = [await Collector.start(), await Collector.start()];
  collector.statuses.push(...Array.from({ length: 99 }, () => 4)); // not yet: it stays packed
  const store = new MemoryStore();
  const first = clientOf(collector.url, { store });
  await first.waitReady(5000);
  await first.record({ mood: "good" });
  expect(await first.flush(200)).toBe(false);
  await first.close(0);
  const kept = await sealedPlan(); // which a page took that was closed at once
  await transact(store, "strict", () => put(new Places("daily").plan, kept));
  const second = clientOf(collector.url, {
    store,
    shuffler: shuffler.url,
    revision: "ab".repeat(32),
  });
  expect(await second.flush(300)).toBe(false);
  await second.close(0);
  expect(shuffler.sealed).toEqual([]);
});

test("what a page of an earlier release goes on to record sealed does not leave in the clear", async () => {
  const [sealed, plain] = [await Collector.start(await sealedPlan()), await Collector.start()];
  const shuffler = await Collector.start();
  const store = new MemoryStore();
  const given = { store, delivery: { batchAge: 60_000 } };
  const earlier = clientOf(sealed.url, { ...given, shuffler: shuffler.url });
  expect(await earlier.waitReady(5000)).toBe(true);
  await transact(store, "strict", () => put(new Places("daily").plan, plain.plan!));
  expect((await earlier.record({ mood: "good", walked: 3 })).taken).toEqual(["mood", "walked"]);
  await earlier.close(0);
  const another = clientOf(plain.url, { store, revision: "ab".repeat(32) });
  await another.flush(500);
  expect(plain.batches).toEqual([]);
  expect((await another.counters()).refused).toBe(1);
});

test("a request to forget is a sealed record like any other", async () => {
  const [collector, shuffler] = [
    await Collector.start(await sealedPlan()),
    await Collector.start(),
  ];
  shuffler.statuses.push(...Array.from({ length: 5 }, () => 4));
  const client = clientOf(collector.url, { shuffler: shuffler.url });
  await client.waitReady(5000);
  await client.record({ mood: "good", walked: 3 });
  await client.flush(100);
  const [record] = shuffler.sealed;
  shuffler.statuses.length = 0;
  shuffler.statuses.push(4); // the first request is put off
  await client.revoke({ forget: true });
  for (let i = 0; i < 100 && new Set(shuffler.sealed).size < 2; i++) await client.flush(50);
  await client.flush(500);
  const requests = shuffler.sealed.filter((each) => each !== record);
  expect(requests.length).toBeGreaterThanOrEqual(1);
  expect(new Set(requests).size).toBe(1);
  expect(requests[0]!.length).toBe(record!.length);
  expect(collector.forgotten).toEqual([]);
  await client.close();
});
