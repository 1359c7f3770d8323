import { expect, test } from "vitest";
import { type Caps, limitsOf } from "../../src/choices.js";
import { SystemCoins } from "../../src/coins.js";
import { parsePlan } from "../../src/plans/plan.js";
import { Account } from "../../src/recording/account.js";
import { type Terms, termsOf } from "../../src/recording/terms.js";
import { categorical, DAY, type Draft, NOON, planOf } from "../kit.js";

const coins = new SystemCoins();

async function terms(draft: Draft = {}, level?: string): Promise<Terms> {
  const plan = await parsePlan(planOf(draft));
  const agreed = {
    survey: plan.survey,
    epsilon: undefined,
    revision: undefined,
    mayReveal: new Map(),
    mayRevealByMap: new Map(),
    mayTellChanges: [],
    agreement: undefined,
    panels: 0,
    delta: undefined,
  };
  return termsOf(plan, { level, levels: [], maps: [], properties: [] }, agreed, new Set());
}

/** Enter a period and report all that may be; return the epsilons that were spent. */
function live(account: Account, t: Terms, now: number, caps: Caps = {}): number[] {
  const limits = [limitsOf(caps)];
  account.enter(t, now, now, coins);
  const spent: number[] = [];
  for (const [name, level] of t.levels) {
    const { epsilon } = level.mechanisms.get(name)!;
    const calls = account.callsCost(t, name);
    if (
      !account.mayReport(t, name, epsilon, limits) ||
      !account.allows("calls", t, name, calls, limits)
    )
      continue;
    account.report(name, epsilon, { calls, life: calls });
    spent.push(epsilon);
  }
  return spent;
}

test("no period is entered twice, however many there were", async () => {
  const t = await terms();
  let account = new Account("", "daily");
  for (let day = 0; day < 100; day += 2) {
    account.enter(t, NOON + day * DAY, undefined, coins);
    account = new Account(account.dump(), "daily");
  }
  for (let day = 0; day < 98; day += 2) {
    const at = NOON + day * DAY;
    expect(() => account.enter(t, at, at, coins)).toThrow(/answered and left|later period/);
  }
  expect(() => account.enter(t, NOON + 100 * DAY, undefined, coins)).not.toThrow();
});

test("days in a row are one stretch, so that none of a year is forgotten", async () => {
  const t = await terms();
  let account = new Account("", "daily");
  for (let day = 0; day < 365; day++) account.enter(t, NOON + day * DAY, undefined, coins);
  account = new Account(account.dump(), "daily");
  for (let day = 0; day < 364; day++) {
    const at = NOON + day * DAY;
    expect(() => account.check(t, at, at)).toThrow("answered and left");
  }
  expect(JSON.parse(account.dump())[0][1].answered).toHaveLength(1);
});

test("another plan waits for the end of what was answered", async () => {
  const account = new Account("", "daily");
  account.enter(await terms(), NOON, undefined, coins);
  const other = await terms({ title: "another" });
  expect(() => account.enter(other, NOON, undefined, coins)).toThrow(/was answered by revision/);
  expect(account.enter(other, NOON + DAY, undefined, coins)).toBe("2026-01-02");
});

test("going back needs the server's word", async () => {
  const t = await terms();
  const account = new Account("", "daily");
  account.enter(t, NOON + 10 * DAY, undefined, coins);
  expect(() => account.check(t, NOON, undefined)).toThrow("a later period was answered");
  expect(() => account.check(t, NOON, NOON + 10 * DAY)).toThrow("a later period was answered");
  expect(account.check(t, NOON, NOON).begins).toBe(true);
});

test("a period that begins more than a day after the server's time is refused, and not remembered", async () => {
  const t = await terms();
  const account = new Account("", "daily");
  expect(() => account.enter(t, NOON + 3 * DAY, NOON, coins)).toThrow(
    "more than a day after the server's time",
  );
  expect(account.enter(t, NOON, NOON, coins)).toBe("2026-01-01");
});

test("of two levels of one period, the second spends no more than its record has left", async () => {
  const account = new Account("", "daily");
  const strict = await terms({}, "strict"); // 0.5 for each attribute
  const loose = await terms({}, "loose"); // 2 for each
  account.enter(loose, NOON, undefined, coins);
  account.report("mood", 2, { calls: 2, life: 2 });
  const again = new Account(account.dump(), "daily");
  again.enter(strict, NOON, undefined, coins);
  expect(again.mayReport(strict, "walked", 0.5, [])).toBe(false);
  const back = new Account(account.dump(), "daily");
  back.enter(loose, NOON, undefined, coins);
  expect([back.mayReport(loose, "walked", 2, []), back.mayReport(loose, "mood", 2, [])]).toEqual([
    true,
    false,
  ]);
});

test("a cap for life holds to the last bit", async () => {
  // Ten tenths are more than one in exact arithmetic, and less in doubles.
  const t = await terms({ attributes: [categorical("a", ["x", "y"])], levels: { only: 0.1 } });
  const account = new Account("", "daily");
  let days = 0;
  while (live(account, t, NOON + days * DAY, { life: 1 }).length) days++;
  expect(days).toBe(9);
  expect(account.left("a", [limitsOf({ life: 1 })])).toBeCloseTo(0.1, 12);
});

test("a cap for all reports of one attribute leaves the others alone", async () => {
  const account = new Account("", "daily");
  const t = await terms({}, "strict");
  const caps = { attributeLife: { mood: 1 } };
  expect([0, 1, 2, 3].map((day) => live(account, t, NOON + day * DAY, caps).length)).toEqual([
    2, 2, 1, 1,
  ]);
  expect(account.left("mood", [limitsOf(caps)])).toBe(0);
  expect(account.left("walked", [limitsOf(caps)])).toBeUndefined();
});

test("a cap for life counts all surveys of a ledger", async () => {
  const t = await terms({ attributes: [categorical("a", ["x", "y"])], levels: { only: 1 } });
  const first = new Account("", "another");
  first.report("x", 1.5, { calls: 1.5, life: 1.5 });
  const account = new Account(first.dump(), "daily");
  expect(live(account, t, NOON, { life: 2 })).toEqual([]);
  expect(live(account, t, NOON, { life: 2.5 })).toEqual([1]);
});

test("a cap for life may be paced, says when it goes on, and takes a record whole", async () => {
  const t = await terms({}, "strict"); // spends 1 a day
  const account = new Account("", "daily");
  const caps = { life: 10, until: "2026-01" };
  const limits = [limitsOf(caps)];
  expect(live(account, t, NOON, caps)).toHaveLength(2); // the first answers at once
  expect(live(account, t, NOON + DAY, caps)).toEqual([]);
  const resumes = account.resumes(t, limits, NOON + DAY)!;
  // A tenth of the time from the first answer to the end of January.
  expect(resumes).toBe(NOON + Math.ceil((Date.UTC(2026, 1, 1) - NOON) / 10));
  expect(live(account, t, resumes - DAY, caps)).toEqual([]);
  expect(live(account, t, resumes + DAY, caps)).toHaveLength(2);
  expect(account.resumes(t, limits, Date.UTC(2026, 1, 1))).toBeUndefined();
});

test("a survey of one period may be answered once, and its stretch is kept", async () => {
  const t = await terms({ period: "" });
  let account = new Account("", "daily");
  expect(account.enter(t, NOON, undefined, coins)).toBe("once");
  expect(live(account, t, NOON)).toHaveLength(2);
  account = new Account(account.dump(), "daily");
  expect(account.enter(t, NOON + 1000 * DAY, NOON, coins)).toBe("once");
  expect(live(account, t, NOON + 1000 * DAY)).toEqual([]);
  expect(() => account.check(t, NOON, NOON)).not.toThrow();
});

test("what is spent on an attribute counts whatever the attribute is called", async () => {
  const names = ["__proto__", "constructor", "toString", "map", "hasOwnProperty"];
  const t = await terms({
    attributes: names.map((name) => categorical(name, ["x", "y"])),
    levels: { only: 5 },
  });
  let account = new Account("", "__proto__");
  expect(live(account, t, NOON)).toHaveLength(5);
  account = new Account(account.dump(), "__proto__");
  expect(live(account, t, NOON)).toEqual([]);
  expect(
    live(account, t, NOON + DAY, { attributeLife: Object.fromEntries([["__proto__", 1]]) }),
  ).toHaveLength(4);
});

test("the draw of a record survives being kept", async () => {
  const half = 2n ** 63n;
  const attributes = [categorical("a", ["x", "y"]), categorical("b", ["x", "y"])];
  const t = await terms({ attributes, levels: { only: 1 }, chances: [half, half] });
  for (let run = 0; run < 20; run++) {
    const account = new Account("", "daily");
    account.enter(t, NOON, undefined, coins);
    const again = new Account(account.dump(), "daily");
    again.enter(t, NOON, undefined, coins);
    const drawn = ["a", "b"].map((name) => account.isDrawn(name));
    expect(["a", "b"].map((name) => again.isDrawn(name))).toEqual(drawn);
    expect(drawn.filter(Boolean)).toHaveLength(1);
  }
});

test.each([
  [{ life: -1 }, "the cap life must be finite"],
  [{ life: Number.NaN }, "the cap life must be finite"],
  [{ life: "9" as unknown as number }, "the cap life must be finite"],
  [{ attribute: { mood: Infinity } }, "the cap mood must be finite"],
  [{ until: "2027" }, "give life"],
  [{ life: 1, until: "2027-W01" }, "up to a year, month or day"],
  [{ life: 1, until: "2027-13" }, "2027-13"],
  [{ live: 1 } as Caps, 'caps has no "live"'],
  [{ attribute: ["mood"] } as unknown as Caps, "expected an object"],
])("caps that cannot be are refused: %o", (caps, message) => {
  expect(() => limitsOf(caps)).toThrow(message);
});
