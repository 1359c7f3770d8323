import { expect, test } from "vitest";
import { type Agreed, checkAgreed } from "../src/choices.js";
import { parsePlan } from "../src/plans/plan.js";
import type { WireClass } from "../src/plans/protobuf.js";
import { categorical, krr, planOf } from "./kit.js";

/** Returns the milliseconds in which a plan of so many values is read and compared with what was agreed. */
async function timeOfComparison(count: number): Promise<number> {
  const values = Array.from({ length: count }, (_, i) => i.toString(36));
  const half = count / 2;
  const sensitive = values.slice(half);
  const one = categorical("page", values, {
    categorical: { values, sensitive, classes: [], maps: [] },
  });
  const agreed: Agreed = {
    survey: "daily",
    epsilon: 1,
    revision: undefined,
    mayReveal: new Map([["page", values.slice(0, half - 1)]]),
    mayRevealByMap: new Map(),
    mayTellChanges: [],
    agreement: undefined,
    panels: 0,
    delta: undefined,
  };
  const bytes = planOf({
    attributes: [one],
    levels: { only: 1 },
    mechanisms: () => [krr(count, 1)],
  });
  const began = performance.now();
  const plan = await parsePlan(bytes);
  expect(() => checkAgreed(agreed, plan, new Set())).toThrow(`may reveal ${values[half - 1]!};`);
  return performance.now() - began;
}

test("the values that a plan may reveal are found in time linear in their number", async () => {
  await timeOfComparison(5_000); // compiled by now
  const few = await timeOfComparison(5_000);
  expect(await timeOfComparison(50_000)).toBeLessThan(40 * few); // a scan for each value: a hundred times
});

test("a plan whose values have too many epsilons is refused at once", async () => {
  const values = Array.from({ length: 3000 }, (_, i) => i.toString(36));
  const classes = values.map((value, i): [string, WireClass] => [
    String(10_000 + i),
    { values: [value], scale: (i + 1) / 3000 },
  ]);
  const one = categorical("page", values, {
    categorical: { values, sensitive: [], classes, maps: [] },
  });
  const plan = planOf({
    attributes: [one],
    levels: { only: 1 },
    mechanisms: () => [krr(values.length, 1)],
  });
  const began = performance.now();
  await expect(parsePlan(plan)).rejects.toThrow("at most 64 classes, got 3000");
  expect(performance.now() - began).toBeLessThan(2000); // closing the distances takes minutes
});
