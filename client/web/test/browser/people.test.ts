import { describe, expect, test } from "vitest";
import { MISSING } from "./chromium.js";
import { world } from "./fixture.js";

describe.skipIf(MISSING)("many people in one page", () => {
  const w = world();

  test("2,000 people record once each, and estimates are within 4 standard errors", async () => {
    const survey = await w.survey();
    const page = await w.page();
    const told = await page.evaluate(
      async ([url, survey]) => {
        const client = new hearsay.Client({
          url: url!,
          survey: survey!,
          level: "open",
          epsilon: 4,
          vouched: () => true,
        });
        let taken = 0;
        let again = 0;
        const dropped: string[] = [];
        for (let i = 0; i < 2000; i++) {
          const person = client.person(`person ${i}`);
          await person.grant();
          if (!i) await person.waitReady(20_000);
          const answers = { smokes: i % 4 ? "no" : "yes", age: 30 + (i % 21) };
          const recorded = await person.record(answers);
          taken += recorded.taken.length;
          for (const why of Object.values(recorded.dropped)) dropped.push(`${i}: ${why}`);
          if (i % 10 === 0) again += (await person.record({ smokes: "sometimes" })).taken.length;
        }
        const sent = await client.flush(60_000);
        const counters = await client.counters();
        await client.close(1000);
        return { taken, again, dropped, sent, counters };
      },
      [w.server.url, survey],
    );
    expect(told.dropped).toEqual([]);
    expect(told.taken).toBe(4000);
    expect(told.again).toBe(0);
    expect(told.sent).toBe(true);
    expect(told.counters["spent"]).toBe(200);
    expect(await w.server.records(survey)).toBe(2000);

    const truths = { smokes: { no: 0.75, sometimes: 0, yes: 0.25 }, age: { mean: 40 } };
    for (const [attribute, shares] of Object.entries(truths)) {
      const estimate = w.server.estimate(survey, attribute, "open");
      expect(Number(estimate.reports)).toBe(2000);
      for (const [label, truth] of Object.entries(shares)) {
        const { index, columns } = estimate.tables.rows;
        const row = index[attribute]!.indexOf(label);
        const error = columns.standard_error.values[row]!;
        // The shares are exact, so that only the mechanism's randomness is left.
        expect(Math.abs(columns.estimate.values[row]! - truth)).toBeLessThan(4 * error);
      }
    }
  });
});
