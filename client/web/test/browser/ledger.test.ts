import type { Page } from "playwright-core";
import { describe, expect, test } from "vitest";
import { MISSING, open } from "./chromium.js";
import { asked, world } from "./fixture.js";

type Made = { made: InstanceType<typeof hearsay.Client> };

interface Outcome {
  readonly taken: readonly string[];
  readonly dropped: Readonly<Record<string, string>>;
  readonly invalid: readonly string[];
}

/** Make a client in the page, record, flush, and return the outcome of the record. */
function recorded(
  page: Page,
  url: string,
  survey: string,
  answers: Record<string, unknown>,
  more: Record<string, unknown> = {},
  vouched = true,
  patience = 5000,
): Promise<Outcome> {
  return page.evaluate(
    async ([url, survey, answers, more, vouched, patience]) => {
      const client = new hearsay.Client({
        url,
        survey,
        level: "strict",
        epsilon: 4,
        consent: true,
        ...(vouched ? { vouched: () => true } : {}),
        ...more,
      });
      await client.waitReady(patience);
      const outcome = await client.record(answers);
      await client.flush(10_000);
      await client.close(1000);
      return outcome;
    },
    [url, survey, answers, more, vouched, patience] as const,
  );
}

const ANSWERS = { smokes: "no", age: 33 };

describe.skipIf(MISSING)("a ledger in IndexedDB", () => {
  // A server takes a survey of two servers where it has a helper. Nothing answers here: the shares wait.
  const w = world("--helper", "127.0.0.1:1");

  test("a record is split between two servers, and charged once", async () => {
    const key = Buffer.alloc(32, 9); // a point of the curve: nobody opens the helper's share here
    const { period } = asked();
    const survey = await w.survey({
      period,
      levels: { strict: 1 },
      attributes: [
        { name: "smokes", categorical: { values: ["no", "sometimes", "yes"] } },
        { name: "age", numeric: { low: 20, high: 60 } },
      ],
      two_servers: { helper_key: key.toString("base64"), delta: 1e-6 },
    });
    const page = await w.page(await w.profile());
    const more = { helperKey: key.toString("hex") };
    const first = await recorded(page, w.server.url, survey, ANSWERS, more);
    expect(first.taken).toEqual(["smokes", "age"]);
    const again = await recorded(page, w.server.url, survey, ANSWERS, more);
    expect(again.dropped).toEqual({ smokes: "spent", age: "spent" });
    expect(await w.server.records(survey)).toBe(1);
  });

  test("a second visit, in another tab, finds the period spent", async () => {
    const survey = await w.survey();
    const profile = await w.profile();
    const first = await w.page(profile);
    expect((await recorded(first, w.server.url, survey, ANSWERS)).taken.length).toBe(2);
    await first.close();
    const second = await w.page(profile);
    const outcome = await recorded(second, w.server.url, survey, { smokes: "yes", age: 50 });
    expect(outcome.taken).toEqual([]);
    expect(outcome.dropped).toEqual({ smokes: "spent", age: "spent" });
    expect(await w.server.records(survey)).toBe(1);
  });

  test("a profile that nobody vouches for reports nothing in its first period", async () => {
    const survey = await w.survey();
    const page = await w.page();
    const outcome = await recorded(page, w.server.url, survey, ANSWERS, {}, false);
    expect(outcome.taken).toEqual([]);
    expect(outcome.dropped).toEqual({ smokes: "new_ledger", age: "new_ledger" });
    expect(await w.server.records(survey)).toBe(0);
  });

  test("a profile reports once its ledger is a day older than the period", async () => {
    const survey = await w.survey(asked("krr", "PT1H"));
    const profile = await w.profile();
    const page = await w.page(profile);
    const before = await recorded(page, w.server.url, survey, ANSWERS, {}, false);
    expect(before.taken).toEqual([]);
    // The server's clock cannot be moved, so the ledger is made older.
    await page.evaluate(
      () =>
        new Promise<void>((resolve) => {
          const opening = indexedDB.open("hearsay");
          opening.onsuccess = () => {
            const transaction = opening.result.transaction("ledger", "readwrite");
            const rows = transaction.objectStore("ledger");
            const reading = rows.get("ledger");
            reading.onsuccess = () => {
              const created = reading.result.created - 26 * 3_600_000;
              rows.put({ ...reading.result, created }, "ledger");
            };
            transaction.oncomplete = () => {
              opening.result.close();
              resolve();
            };
          };
        }),
    );
    const after = await recorded(page, w.server.url, survey, ANSWERS, {}, false);
    expect(after.taken.length).toBe(2);
    expect(await w.server.records(survey)).toBe(1);
  });

  test("site data that were cleared are a ledger that may have spent", async () => {
    const survey = await w.survey();
    const profile = await w.profile();
    const page = await w.page(profile);
    expect((await recorded(page, w.server.url, survey, ANSWERS)).taken.length).toBe(2);
    const session = await profile.newCDPSession(page);
    const origin = w.site.origin;
    await session.send("Storage.clearDataForOrigin", { origin, storageTypes: "all" });
    const again = await open(profile, w.site);
    const outcome = await recorded(again, w.server.url, survey, ANSWERS, {}, false);
    expect(outcome.dropped).toEqual({ smokes: "new_ledger", age: "new_ledger" });
    expect(await w.server.records(survey)).toBe(1);
  });

  test("site data that are cleared under an open page take nothing more there", async () => {
    const survey = await w.survey();
    const profile = await w.profile();
    const page = await w.page(profile);
    await page.evaluate(
      async ([url, survey]) => {
        const made = new hearsay.Client({
          url: url!,
          survey: survey!,
          level: "strict",
          epsilon: 4,
          consent: true,
        });
        await made.waitReady(5000);
        Object.assign(globalThis, { made });
      },
      [w.server.url, survey],
    );
    const session = await profile.newCDPSession(page);
    const origin = w.site.origin;
    await session.send("Storage.clearDataForOrigin", { origin, storageTypes: "indexeddb" });
    const taken = await page.evaluate(async (answers) => {
      const { made } = globalThis as unknown as Made;
      const { taken } = await made.record(answers);
      await made.flush(5000);
      return taken;
    }, ANSWERS);
    expect(taken).toEqual([]);
    expect(await w.server.records(survey)).toBe(0);
  });

  test("a clock that is set back spends no period twice, and none long gone", async () => {
    const survey = await w.survey();
    const page = await w.page();
    expect((await recorded(page, w.server.url, survey, ANSWERS)).taken.length).toBe(2);
    // Yesterday may still be answered, once: the server would take it.
    const taken = [];
    for (const days of [1, 1, 2, 400, 0]) {
      await page.clock.setSystemTime(Date.now() - days * 86_400_000);
      const outcome = await recorded(page, w.server.url, survey, ANSWERS, {}, true, 500);
      taken.push(outcome.taken.length);
    }
    expect(taken).toEqual([2, 0, 0, 0, 0]);
    expect(await w.server.records(survey)).toBe(2);
  });

  test("a clock more than a day ahead spends nothing", async () => {
    const survey = await w.survey();
    const page = await w.page();
    await page.clock.setSystemTime(Date.now() + 3 * 86_400_000);
    const ahead = await recorded(page, w.server.url, survey, ANSWERS);
    expect(ahead.dropped).toEqual({ smokes: "clock", age: "clock" });
    await page.clock.setSystemTime(Date.now());
    expect((await recorded(page, w.server.url, survey, ANSWERS)).taken.length).toBe(2);
    expect(await w.server.records(survey)).toBe(1);
  });

  test("it works under a content security policy that allows its script and the server only", async () => {
    // A rare mechanism, whose chunk is imported when the plan comes.
    const survey = await w.survey(asked("cms"));
    const policy = `default-src 'none'; script-src 'self'; connect-src ${w.server.url}; img-src data:`;
    w.site.policy = policy;
    try {
      const profile = await w.profile();
      const page = await profile.newPage();
      const violations: string[] = [];
      page.on("console", (message) => {
        if (message.type() === "error") violations.push(message.text());
      });
      await page.goto(w.site.origin);
      await page.waitForFunction("globalThis.hearsay !== undefined");
      const outcome = await recorded(page, w.server.url, survey, ANSWERS);
      expect(outcome.taken.length).toBe(2);
      expect(violations).toEqual([]);
      expect(await w.server.records(survey)).toBe(1);
    } finally {
      w.site.policy = undefined;
    }
  });

  test("answers of wrong types are reported as random values, or thrown where strict", async () => {
    const survey = await w.survey();
    const wrong = [5, null, "maybe", {}, [], NaN, "no "];
    const page = await w.page();
    for (const [i, answer] of wrong.entries()) {
      const person = { smokes: answer, age: "33" };
      const outcome = await page.evaluate(
        async ([url, survey, i, answers]) => {
          const client = new hearsay.Client({
            url,
            survey,
            level: "strict",
            epsilon: 4,
            vouched: () => true,
          });
          const person = client.person(`${i}`);
          await person.grant();
          await person.waitReady(5000);
          const outcome = await person.record(answers);
          await client.flush(5000);
          await client.close(1000);
          return outcome;
        },
        [w.server.url, survey, i, person] as const,
      );
      // null is no answer, as undefined is: it is withheld.
      const taken = answer === null ? ["age"] : ["smokes", "age"];
      expect(outcome.taken).toEqual(taken);
      expect(outcome.invalid).toEqual(taken);
    }
    expect(await w.server.records(survey)).toBe(wrong.length);
    const thrown = await page.evaluate(
      async ([url, survey]) => {
        const client = new hearsay.Client({
          url: url!,
          survey: survey!,
          level: "strict",
          epsilon: 4,
          consent: true,
          strict: true,
          vouched: () => true,
        });
        await client.waitReady(5000);
        const error = await client
          .record({ smokes: "a secret answer", age: 33 })
          .catch((error: unknown) => error as Error);
        const spent = (await client.spendings()).filter((each) => each.reports);
        await client.close(1000);
        return { name: (error as Error).name, message: (error as Error).message, spent };
      },
      [w.server.url, survey],
    );
    expect(thrown.name).toBe("InvalidInput");
    expect(thrown.message).not.toContain("secret");
    expect(thrown.spent).toEqual([]);
  });
});
