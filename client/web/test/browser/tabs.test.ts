import { describe, expect, test } from "vitest";
import { MISSING, open } from "./chromium.js";
import { world } from "./fixture.js";
import { pause, Relay } from "./site.js";

const ROUNDS = 100;

describe.skipIf(MISSING)("tabs that share a ledger", () => {
  const w = world();

  test.each([2, 4])(
    "%i tabs record 100 people once, and the server counts each once",
    async (tabs) => {
      const survey = await w.survey();
      const profile = await w.profile();
      const pages = await Promise.all(Array.from({ length: tabs }, () => w.page(profile)));
      // All have the plan before one of them records: they begin together.
      const clients = await Promise.all(
        pages.map((page) =>
          page.evaluateHandle(
            async ([url, survey]) => {
              const client = new hearsay.Client({
                url,
                survey,
                level: "strict",
                epsilon: 4,
                vouched: () => true,
                delivery: { batchAge: 100 },
              });
              await client.grant();
              await client.waitReady(20_000);
              return client;
            },
            [w.server.url, survey] as const,
          ),
        ),
      );
      const outcomes = await Promise.all(
        pages.map((page, tab) =>
          page.evaluate(
            async ([client, tab]) => {
              const order = Array.from({ length: 100 }, (_, i) => (i * 37 + tab * 25) % 100);
              const taken: number[] = [];
              for (const i of order) {
                const person = client.person(`${i}`);
                await person.grant();
                await client.waitReady(20_000);
                if ((await person.record({ smokes: "no", age: 33 })).taken.length) taken.push(i);
              }
              const sent = await client.flush(30_000);
              await client.close(1000);
              return { taken, sent };
            },
            [clients[tab]!, tab] as const,
          ),
        ),
      );
      const all = outcomes.flatMap((each) => each.taken);
      expect(all.length).toBe(100);
      expect(new Set(all).size).toBe(100);
      expect(outcomes.every((each) => each.sent)).toBe(true);
      // Each tab had its part: none waited for the others to end.
      expect(outcomes.every((each) => each.taken.length > 0)).toBe(true);
      expect(await w.server.records(survey)).toBe(100);
    },
  );

  test("a tab that is closed during record spends and queues a report, or neither", async () => {
    const survey = await w.survey();
    const profile = await w.profile();
    const last = await w.page(profile);
    const acknowledged: number[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      const page = await open(profile, w.site);
      await page.evaluate(
        async ([url, survey]) => {
          const made = new hearsay.Client({
            url: url!,
            survey: survey!,
            level: "strict",
            epsilon: 4,
            consent: true,
            vouched: () => true,
            delivery: { batchAge: 3_600_000 },
          });
          await made.waitReady(20_000);
          Object.assign(globalThis, { made });
        },
        [w.server.url, survey],
      );
      // The tab goes at a moment between before and after the transaction, which takes 1 to 5 ms.
      const recording = page
        .evaluate(async (round) => {
          const { made } = globalThis as unknown as { made: InstanceType<typeof hearsay.Client> };
          const person = made.person(`${round}`);
          await person.grant();
          return (await person.record({ smokes: "no", age: 33 })).taken.length;
        }, round)
        .then((taken) => taken && acknowledged.push(round))
        .catch(() => undefined);
      await pause((round % 20) * 0.6);
      await page.close();
      await recording;
    }
    const told = await last.evaluate(
      async ([url, survey, rounds]) => {
        const client = new hearsay.Client({
          url,
          survey,
          level: "strict",
          epsilon: 4,
          consent: true,
          vouched: () => true,
        });
        await client.waitReady(20_000);
        const waiting = await client.outbox();
        const late: number[] = [];
        const spent: number[] = [];
        for (let i = 0; i < rounds; i++) {
          const person = client.person(`${i}`);
          await person.grant();
          const had = (await person.spendings()).filter((each) => each.reports).length;
          const { taken } = await person.record({ smokes: "no", age: 33 });
          (taken.length ? late : spent).push(i);
          // An account that was spent has the whole record spent, and is not spent again.
          if (had !== (taken.length ? 0 : 2)) throw new Error(`${i}: ${had} spent, ${taken} taken`);
        }
        const sent = await client.flush(30_000);
        await client.close(1000);
        return { waiting: waiting.reports.length, late, spent, sent };
      },
      [w.server.url, survey, ROUNDS] as const,
    );
    expect(told.sent).toBe(true);
    // What was acknowledged is there; what is spent was queued.
    for (const round of acknowledged) expect(told.spent).toContain(round);
    expect(told.waiting).toBe(told.spent.length);
    // The closing hit both sides of the transaction, or the test shows nothing.
    expect(told.late.length).toBeGreaterThan(0);
    expect(told.spent.length).toBeGreaterThan(0);
    expect(await w.server.records(survey)).toBe(ROUNDS);
  });

  test("a tab that is closed during a send loses and doubles nothing", async () => {
    const survey = await w.survey();
    const profile = await w.profile();
    const relay = await Relay.start(w.server.url);
    // The tab goes before the request, while the server has it, or about when the answer comes.
    relay.delay = (isAnswer) => Math.random() * (isAnswer ? 200 : 20);
    try {
      for (let round = 0; round < ROUNDS; round++) {
        const page = await open(profile, w.site);
        await page.evaluate(
          async ([url, survey, round]) => {
            const client = new hearsay.Client({
              url,
              survey,
              level: "strict",
              epsilon: 4,
              vouched: () => true,
              delivery: { batchAge: 3_600_000 },
            });
            const person = client.person(`${round}`);
            await person.grant();
            await person.waitReady(20_000);
            await client.flush(10_000); // what the last tab left behind
            await person.record({ smokes: "no", age: 33 });
            client.flush(10_000).catch(() => undefined);
          },
          [relay.url, survey, round] as const,
        );
        const sending = new Promise<void>((resolve) => {
          relay.onSubmit = resolve;
        });
        if (round % 4) await Promise.race([sending, pause(300)]);
        await pause(Math.random() * 50);
        await page.close();
      }
      const page = await open(profile, w.site);
      const told = await page.evaluate(
        async ([url, survey]) => {
          const client = new hearsay.Client({
            url: url!,
            survey: survey!,
            level: "strict",
            epsilon: 4,
            consent: true,
            vouched: () => true,
          });
          await client.waitReady(20_000);
          const sent = await client.flush(60_000);
          const { reports, batches } = await client.outbox();
          await client.close(1000);
          return { sent, left: reports.length + batches.length };
        },
        [relay.url, survey],
      );
      expect(told).toEqual({ sent: true, left: 0 });
      expect(await w.server.records(survey)).toBe(ROUNDS);
      // Batches came again because a tab was gone before their answer, or the test shows nothing.
      console.log(`${relay.submits - ROUNDS} of ${ROUNDS} batches came again`);
      expect(relay.submits).toBeGreaterThan(1.25 * ROUNDS);
    } finally {
      await relay.stop();
    }
  });
});
