/** The terms on which one person's answers are taken: a plan at the person's levels. */

import {
  type Agreed,
  checkMap,
  type Choices,
  type Limits,
  noAttribute,
  shown,
  told,
} from "../choices.js";
import type { Coins } from "../coins.js";
import { HearsayError, InvalidInput } from "../errors.js";
import type { Mechanism } from "../mechanisms/mechanism.js";
import type { Encoded } from "../plans/kinds/index.js";
import type { Memoizer } from "../plans/memo.js";
import { end, label, start } from "../plans/period.js";
import type { Level, Plan } from "../plans/plan.js";
import { nameOf } from "../storage/store.js";

/** A plan as one person executes it: each question's level, and what a record spends. */
export interface Terms {
  readonly plan: Plan;
  readonly level: Level;
  /** The level of each name of `Plan.recorded`. */
  readonly levels: ReadonlyMap<string, Level>;
  /** The maps that were chosen, by attribute. */
  readonly maps: ReadonlyMap<string, string>;
  /** The mechanism of each question, at its level and map. */
  readonly mechanisms: ReadonlyMap<string, Mechanism>;
  readonly withheld: ReadonlySet<string>;
  /** The names of `Plan.recorded` that may be reported: questions that ask no attribute that is withheld. */
  readonly answered: ReadonlySet<string>;
  /** By attribute the questions that ask it. */
  readonly containing: ReadonlyMap<string, readonly string[]>;
  /** The memoizers of the memoised attributes. */
  readonly memoizers: ReadonlyMap<string, Memoizer>;
  /** The most that one record spends: all questions that it can report together. */
  readonly recordEpsilon: number;
  /** The value of each public property, "" for one that was not given or that the survey does not declare. */
  readonly properties: readonly string[];
  /** Which of the given values the survey does not declare, in words. */
  readonly undeclared: string;
  /** Return the most that one record spends on an attribute: on all questions that ask it. */
  epsilonOf(attribute: string): number;
  /** Draw the questions that one record reports. */
  draw(coins: Coins): string[];
  /** Return the period that a time is in, in milliseconds since 1970. */
  periodAt(now: number): Period;
}

/** A period: its name, and when it begins and ends, as dates can have it. */
export interface Period {
  readonly name: string;
  readonly begin: number;
  readonly end: number;
}

/** The last moment that a date can have: the one period of a survey without a unit ends there. */
const FOREVER = 8.64e15;

/** Return a function that names the period of a time, and remembers the last hour that it was asked for:
 * most records of a page are of one. */
function periodsOf(unit: string): (now: number) => Period {
  let last: { hour: number; period: Period } | undefined;
  return (now) => {
    const hour = Math.floor(now / 3600e3);
    if (last?.hour !== hour) {
      const name = label(unit, now);
      const [begin, until] = [
        Math.max(-FOREVER, start(unit, name)),
        Math.min(FOREVER, end(unit, name)),
      ];
      last = { hour, period: { name, begin, end: until } };
    }
    return last.period;
  };
}

/**
 * Return the terms of one person under a plan that was agreed to.
 *
 * Throws `InvalidInput` where the plan lacks a level, map, attribute or property, a map could reveal more than the app
 * agreed to, or a record at these levels spends more than the loosest of them, than the app agreed to, or on an
 * attribute than the plan's cap of it. A view is reported at the strictest of its attributes' levels.
 */
export function termsOf(
  plan: Plan,
  choices: Choices,
  agreed: Agreed,
  withheld: ReadonlySet<string>,
): Terms {
  if (choices.level === undefined && !plan.defaultLevel) {
    throw new InvalidInput(
      `${shown(plan.survey)} has no default level: choose one of ${[...plan.levels.keys()].join(", ")}`,
    );
  }
  const named = (name: string): Level => {
    const level = plan.levels.get(name);
    if (level) return level;
    throw new InvalidInput(
      `level must be one of ${[...plan.levels.keys()].join(", ")}, got ${shown(name)}`,
    );
  };
  const level = named(choices.level ?? plan.defaultLevel);
  const byAttribute = new Map([...plan.attributes.keys()].map((name) => [name, level]));
  for (const [name, other] of choices.levels) {
    if (!byAttribute.has(name)) throw new InvalidInput(noAttribute(plan, name));
    byAttribute.set(name, named(other));
  }
  const strictest = [...plan.levels.values()]; // in order of epsilon
  const { recorded } = plan;
  const names = [...recorded.keys()];
  const levels = new Map<string, Level>();
  for (const [name, parts] of recorded) {
    const ranks = parts.map((part) => strictest.indexOf(byAttribute.get(part)!));
    levels.set(name, strictest[Math.min(...ranks)]!);
  }
  const maps = new Map(choices.maps.filter(([, map]) => map));
  for (const [name, map] of maps) checkMap(agreed, plan, name, map, withheld);
  let { budget } = level;
  const mechanisms = new Map<string, Mechanism>();
  for (const [position, name] of [...plan.questions.keys()].entries()) {
    const chosen = levels.get(name)!;
    const own = chosen.mechanisms.get(name)!;
    if (chosen !== level) budget = budget.withEpsilon(position, own.epsilon);
    const map = maps.get(name);
    mechanisms.set(name, map === undefined ? own : chosen.mapped.get(name)!.get(map)!);
  }
  const memoizers = new Map<string, Memoizer>();
  for (const [name, chosen] of levels) {
    const memoizer = chosen.memoizers.get(name);
    if (memoizer) memoizers.set(name, memoizer);
  }
  const containing = new Map(
    [...plan.attributes.keys()].map((part) => [
      part,
      names.filter((name) => recorded.get(name)!.includes(part)),
    ]),
  );
  // With two servers an attribute that is withheld is an absent answer of the record.
  const isAnswered = (parts: readonly string[]): boolean =>
    plan.twoServers
      ? parts.some((part) => !withheld.has(part))
      : !parts.some((part) => withheld.has(part));
  const answered = new Set(names.filter((name) => isAnswered(recorded.get(name)!)));
  const together = (asked: readonly string[]): number => {
    const reported = asked.filter((name) => answered.has(name));
    return budget.recordEpsilon(new Set(reported.map((name) => names.indexOf(name))));
  };
  const recordEpsilon = together(names);
  const allowed = Math.max(...[level, ...levels.values()].map((each) => each.epsilon));
  if (recordEpsilon > allowed) {
    throw new InvalidInput(
      `these levels together spend epsilon ${recordEpsilon} on a record, more than the loosest of them, ` +
        `${allowed}: the plan does not go by levels`,
    );
  }
  const epsilonOf = (attribute: string): number => together(containing.get(attribute)!);
  for (const { name, cap } of plan.attributes.values()) {
    const chosen = new Set(containing.get(name)!.map((question) => levels.get(question)!));
    if (cap === Infinity || chosen.size < 2) continue; // the plan was checked at each level alone
    const spent = epsilonOf(name);
    if (spent > cap) {
      throw new InvalidInput(
        `these levels together spend epsilon ${spent} on the views of ${shown(name)}, more ` +
          `than its cap of ${cap}`,
      );
    }
  }
  if (agreed.epsilon !== undefined && recordEpsilon > agreed.epsilon) {
    throw new InvalidInput(
      `a record of ${shown(plan.survey)} would spend epsilon ${recordEpsilon}, and the app allows ` +
        `epsilon: ${agreed.epsilon}`,
    );
  }
  const draw = (coins: Coins): string[] => budget.draw(coins).map((j) => names[j]!);
  return {
    plan,
    level,
    levels,
    maps,
    mechanisms,
    withheld,
    answered,
    containing,
    memoizers,
    recordEpsilon,
    ...told(plan.properties, choices.properties),
    epsilonOf,
    draw,
    periodAt: periodsOf(plan.period),
  };
}

/** Return the epsilon of a report of a question, or for a memoised one of a new memo. */
export function cost(terms: Terms, name: string): number {
  if (terms.plan.twoServers) return terms.level.epsilon;
  return (terms.memoizers.get(name) ?? terms.mechanisms.get(name)!).epsilon;
}

/** Return the lowest cap of what one record spends on an attribute: the plan's, and those of `limits`; infinity
 * where there is none. */
export function capOf(terms: Terms, attribute: string, limits: readonly Limits[]): number {
  const own = limits.flatMap((each) => each.attribute.get(attribute) ?? []);
  return Math.min(terms.plan.attributes.get(attribute)!.cap, ...own);
}

/** Tell whether a lost ledger can never be made good: the survey has one period only, or memos that
 * were lost would have to be repeated. */
export function isForLife(terms: Terms): boolean {
  return (
    !terms.plan.period || [...terms.memoizers.keys()].some((name) => !terms.withheld.has(name))
  );
}

/** Throw `InvalidInput` where one record may spend more on an attribute than its cap allows, or a cap is for
 * an attribute that the survey lacks. */
export function checkLimits(terms: Terms, limits: Limits): void {
  for (const name of [...limits.attribute.keys(), ...limits.attributeLife.keys()]) {
    if (!terms.plan.attributes.has(name))
      throw new InvalidInput(`a cap of ${shown(name)}: ${noAttribute(terms.plan, name)}`);
  }
  for (const [name, cap] of limits.attribute) {
    const asked = terms.containing.get(name)!.filter((each) => terms.answered.has(each));
    const each = asked.flatMap((question) => terms.mechanisms.get(question)?.epsilon ?? []);
    const epsilon = Math.max(terms.epsilonOf(name), ...each);
    if (epsilon > cap) {
      const chosen = new Set(asked.map((question) => terms.levels.get(question)!.name));
      throw new InvalidInput(
        `level ${shown([...chosen].join(", "))} spends epsilon ${epsilon} on ${shown(name)}, above the cap of ${cap}`,
      );
    }
  }
}

/** Return an answer as the attribute's domain encodes it; throw `InvalidInput`, without repeating the
 * answer, where it is outside the domain. */
export function encode(plan: Plan, name: string, answer: unknown): Encoded {
  try {
    return plan.attributes.get(name)!.domain.encode(answer);
  } catch (error) {
    // The answer is an object of the app's, whose methods may throw.
    throw new InvalidInput(
      error instanceof HearsayError
        ? `${name} ${error.message}`
        : `${name} cannot be read: ${nameOf(error)}`,
    );
  }
}
