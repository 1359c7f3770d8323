import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { type Durability, MemoryStore, type Store, type Work } from "../src/index.js";
import { categorical, Clock, Collector, DAY, krr, MOODS, planOf, QUICK, readyOf } from "./kit.js";

beforeEach(() => {
  vi.spyOn(console, "warn").mockImplementation(() => {});
});

afterEach(() => {
  vi.restoreAllMocks();
});

/**
 * A store whose power can be cut. Only what a strict transaction itself wrote is certain to be left: the
 * least that a browser promises.
 */
class Cuttable implements Store {
  #volatile = new MemoryStore();
  readonly #disk = new Map<string, unknown>();

  run<T>(work: () => Work<T>, durability: Durability): Promise<T> {
    const [disk, written] = [this.#disk, [] as [string, unknown][]];
    function* watched(): Work<T> {
      const steps = work();
      let step = steps.next();
      while (!step.done) {
        const each = step.value;
        if (each.op === "put") written.push([each.key, each.value]);
        if (each.op === "delete") written.push([each.key, undefined]);
        step = steps.next(yield each);
      }
      if (durability === "strict") for (const [key, value] of written) disk.set(key, value);
      return step.value;
    }
    return this.#volatile.run(watched);
  }

  async cut(): Promise<void> {
    this.#volatile = new MemoryStore();
    const left = [...this.#disk];
    await this.#volatile.run(function* () {
      for (const [key, value] of left) if (value !== undefined) yield { op: "put", key, value };
    });
  }
}

test("what left is spent after a power cut, whatever relaxed transactions are lost", async () => {
  const server = await Collector.start();
  for (const before of [false, true]) {
    const store = new Cuttable();
    const options = { store, vouched: () => true, delivery: { ...QUICK, batchAge: 60_000 } };
    const first = await readyOf(server.url, options);
    const ann = first.person("ann");
    await ann.grant();
    await first.record({ mood: "good" });
    await ann.record({ mood: "bad", walked: 2 });
    if (before) await store.cut();
    else expect(await first.flush()).toBe(true);
    await first.record({ walked: 1 }); // not sent: this may be lost
    await store.cut();
    const second = await readyOf(server.url, options);
    const again = await second.record({ mood: "good", walked: 1 });
    expect(again.dropped).toEqual(before ? {} : { mood: "spent" });
    expect((await second.person("ann").record({ mood: "bad", walked: 2 })).taken).toEqual(
      before ? ["mood", "walked"] : [],
    );
    await second.close();
    await first.close(1);
  }
});

test("a memo that was reported is not drawn again after a power cut", async () => {
  const attributes = [categorical("mood", MOODS, { memo: 1 })];
  const plan = planOf({
    attributes,
    levels: { only: 1 },
    mechanisms: (_, epsilon) => [krr(3, epsilon)],
  });
  const server = await Collector.start(plan);
  for (let run = 0; run < 12; run++) {
    const clock = new Clock();
    const options = {
      store: new Cuttable(),
      vouched: () => true,
      mayTellChanges: ["mood"],
      clock: clock.read,
    };
    const codes: number[] = [];
    for (let day = 0; day < 2; day++) {
      const client = await readyOf(server.url, options);
      await client.record({ mood: "good" });
      expect(await client.flush()).toBe(true);
      codes.push(server.batches.at(-1)!.batch.columns[0]!.codes[0]!);
      await options.store.cut();
      await client.close(1);
      clock.now += DAY;
      server.serverTime = clock.now / 1000;
    }
    expect(codes[1]).toBe(codes[0]);
  }
});

test("consent, its end, and the first plan are on the disk at once", async () => {
  const server = await Collector.start();
  const store = new Cuttable();
  const options = { store, vouched: () => true, consent: false };
  const first = await readyOf(server.url, { ...options, consent: true });
  const { revision } = first.plan;
  await store.cut();
  server.plan = planOf({ title: "another" });
  const second = await readyOf(server.url, options);
  expect(second.plan.revision).toBe(revision);
  await second.record({ mood: "good" });
  await second.revoke();
  await store.cut();
  const third = await readyOf(server.url, options).catch((error) => error);
  expect(String(third)).toContain("no_consent");
});
