/** A cap of an attribute within one period, while a person changes level between records. */

import { expect, test } from "vitest";
import { limitsOf } from "../../src/choices.js";
import { SystemCoins } from "../../src/coins.js";
import { InvalidInput } from "../../src/errors.js";
import { parsePlan } from "../../src/plans/plan.js";
import { Account } from "../../src/recording/account.js";
import type { Places } from "../../src/recording/places.js";
import { randomize } from "../../src/recording/randomize.js";
import { type Terms, termsOf } from "../../src/recording/terms.js";
import { categorical, krr, NOON, planOf } from "../kit.js";

const coins = new SystemCoins();
const VALUES: Record<string, number> = { smokes: 2, sleeps: 3, age: 2, sex: 2, town: 3 };

interface Case {
  /** By level its epsilon and that of each question; views have "+" in their names. */
  levels: Record<string, [number, Record<string, number>]>;
  halves?: number[];
  planCaps?: Record<string, number>;
  appCaps?: Record<string, number>;
}

// The cases of tests/hearsay/test_caps_within_a_period.py.
const CASES: Record<string, Case> = {
  "two views": {
    levels: {
      strict: [1.5, { town: 0.5, "smokes+sleeps": 0.9, "smokes+age": 0.05 }],
      open: [3, { town: 2, "smokes+sleeps": 0.05, "smokes+age": 0.85 }],
    },
    planCaps: { smokes: 1 },
  },
  "three views": {
    levels: {
      strict: [1.5, { town: 0.5, "smokes+sleeps": 0.5, "smokes+age": 0.2, "smokes+sex": 0.2 }],
      middle: [2, { town: 1, "smokes+sleeps": 0.2, "smokes+age": 0.1, "smokes+sex": 0.6 }],
      open: [2.5, { town: 1.5, "smokes+sleeps": 0.1, "smokes+age": 0.1, "smokes+sex": 0.7 }],
    },
    planCaps: { smokes: 1 },
  },
  "sampled views": {
    levels: {
      strict: [1.5, { town: 0.5, "smokes+sleeps": 0.7, "smokes+age": 0.1, "sleeps+age": 0.2 }],
      open: [3, { town: 1.5, "smokes+sleeps": 0.2, "smokes+age": 0.7, "sleeps+age": 0.75 }],
    },
    halves: [2, 2, 1, 1],
    planCaps: { smokes: 0.9, sleeps: 1 },
  },
  "a cap of the app's": {
    levels: {
      strict: [1.5, { town: 0.5, "smokes+sleeps": 0.9, "sleeps+age": 0.05 }],
      open: [3, { town: 2, "smokes+sleeps": 0.1, "sleeps+age": 0.85 }],
    },
    appCaps: { sleeps: 1 },
  },
};

interface Choice {
  level: string;
  levels: [string, string][];
  given: string[];
}

/** Ten choices: levels, and the attributes that are answered. */
function choicesOf({ levels }: Case, names: string[]): Choice[] {
  const known = Object.keys(levels);
  const [first, last] = [known[0]!, known.at(-1)!];
  const views = Object.keys(levels[first]![1])
    .filter((name) => name.includes("+"))
    .map((name) => name.split("+"));
  const asked = [names, views[0]!, views[1]!];
  const mixed = [views[0]![0]!, views[0]![1]!, views[1]!.at(-1)!];
  return [
    ...[first, last].flatMap((level) => asked.map((given) => ({ level, levels: [], given }))),
    { level: known[1]!, levels: [], given: views.at(-1)! },
    ...mixed.map((name): Choice => ({ level: last, levels: [[name, first]], given: names })),
  ];
}

test.each(Object.entries(CASES))(
  "no sequence of choices within a period exceeds a cap: %s",
  async (_, each) => {
    const { levels, halves = [], planCaps = {}, appCaps = {} } = each;
    const questions = Object.keys(Object.values(levels)[0]![1]);
    const views = questions.filter((name) => name.includes("+")).map((name) => name.split("+"));
    const names = [...new Set(questions.flatMap((name) => name.split("+")))];
    const size = (question: string): number =>
      question.split("+").reduce((found, part) => found * VALUES[part]!, 1);
    const plan = await parsePlan(
      planOf({
        attributes: names.map((name) => {
          const values = [...Array(VALUES[name]).keys()].map(String);
          const cap = planCaps[name];
          return { ...categorical(name, values), ...(cap !== undefined && { cap }) };
        }),
        views,
        levels: Object.fromEntries(
          Object.entries(levels).map(([name, [epsilon]]) => [name, epsilon]),
        ),
        chances: halves.map((chance) => (BigInt(chance) << 63n) % (1n << 64n)),
        mechanisms: (level) => Object.entries(levels[level]![1]).map(([q, e]) => krr(size(q), e)),
      }),
    );
    const agreed = {
      survey: plan.survey,
      epsilon: 10,
      revision: undefined,
      mayReveal: new Map(),
      mayRevealByMap: new Map(),
      mayTellChanges: [],
      agreement: undefined,
      panels: 0,
      delta: undefined,
    };
    const limits = [limitsOf({ attribute: appCaps })];
    const every = choicesOf(each, names).flatMap((choice): [Terms, string[]][] => {
      try {
        const chosen = { level: choice.level, levels: choice.levels, maps: [], properties: [] };
        return [[termsOf(plan, chosen, agreed, new Set()), choice.given]];
      } catch (error) {
        if (error instanceof InvalidInput) return []; // the client refuses this mix of levels
        throw error;
      }
    });
    expect(every.length).toBeGreaterThan(6);

    const place = { places: undefined as unknown as Places, person: "", salt: "" }; // for memos alone
    let worst = 0;
    const after = (stored: string, reports: [string, string][], left: number): void => {
      for (const [attribute, cap] of Object.entries({ ...planCaps, ...appCaps })) {
        const spent = reports
          .filter(([question]) => question.split("+").includes(attribute))
          .reduce((sum, [question, level]) => sum + levels[level]![1][question]!, 0);
        expect(spent, JSON.stringify(reports)).toBeLessThanOrEqual(cap + 1e-12);
        worst = Math.max(worst, spent / cap);
      }
      if (!left) return;
      for (const [terms, given] of every) {
        const account = new Account(stored, "daily");
        account.enter(terms, NOON, undefined, coins);
        const values = new Map(given.map((name) => [name, 0]));
        const done = randomize(values, terms, account, limits, place, coins).next();
        expect(done.done).toBe(true);
        const codes = done.done ? done.value.codes : [];
        const made = codes.map(({ attribute, level }): [string, string] => [attribute, level]);
        after(account.dump(), [...reports, ...made], left - 1);
      }
    };
    after("", [], 3);
    expect(worst).toBeGreaterThan(0.85); // the caps are not kept by reporting nothing
  },
);
