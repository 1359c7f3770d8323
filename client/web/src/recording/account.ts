/** One person's privacy accounts: epsilon spent, and whether one more report fits; no storage. */

import { type Limits, type Spent, total } from "../choices.js";
import type { Coins } from "../coins.js";
import { compare, type Fraction, fraction, fromDouble, plus, sum, times } from "../core/exact.js";
import { uniform } from "../core/draws.js";
import { Trouble } from "../trouble.js";
import { capOf, cost, type Terms } from "./terms.js";

/** How far a period may begin after, or have ended before, the server's time, in milliseconds. */
export const AHEAD = 24 * 3600e3;

/** Answered time ranges that an account remembers. Beyond that the two earliest are merged, which also
 * closes the time between them. */
const STRETCHES = 32;

/** `life` is what reports really cost; `calls` is the same, as if a memoised attribute needed one memo
 * only, whatever the answers. */
export type Kind = "life" | "calls";

type Times = Map<string, Map<number, number>>;

interface Survey {
  /** The latest period ("": none), when it was entered, and by which revision. */
  period: string;
  entered: number;
  revision: string;
  /** When the first answer was recorded; absent before. */
  since?: number;
  /** The questions that were drawn for the period. */
  drawn: string[];
  /** The epsilon of each question that was reported in the period. */
  spent: Map<string, number>;
  /** The time ranges of the answered periods. */
  answered: [number, number][];
  /** How many times each epsilon was ever spent, by question. */
  life: Times;
  calls: Times;
  /** The attributes that each view asked, as a later revision may ask them in other views, which must not
   * begin them anew. A question without an entry is the attribute of its name. */
  parts: Map<string, readonly string[]>;
  /** Of `life`, what was spent on records that were split between two servers: question, epsilon, delta, how often. */
  split: [string, number, number, number][];
  /** The person's panel, by how many there were to draw from; absent before any was drawn. */
  panels?: Record<number, number>;
  /** The costs in the period. */
  costs: Record<Kind, number[]>;
}

type List = [string, [number, number][]][];

/** A survey's account as the ledger keeps it. */
type Kept = Omit<Survey, "spent" | "life" | "calls" | "parts" | "split"> & {
  spent: [string, number][];
  life: List;
  calls: List;
  /** Missing where an earlier version wrote the account. */
  parts?: [string, readonly string[]][];
  split?: [string, number, number, number][];
};

/**
 * One person's accounts, by survey, as the ledger keeps them; the methods act on one survey.
 *
 * Whether a report is dropped goes by `calls`, so it never depends on an answer: where only `life` is
 * exhausted, a random value is reported.
 */
export class Account {
  readonly #all: Map<string, Survey>;
  readonly #mine: Survey;
  #left: Fraction | undefined;

  /** Read the accounts from what `dump` returned; "" is a person without any. */
  constructor(stored: string, survey: string) {
    this.#all = new Map(
      stored
        ? (JSON.parse(stored) as [string, Kept][]).map(([name, kept]) => [name, read(kept)])
        : [],
    );
    let mine = this.#all.get(survey);
    if (!mine) {
      mine = {
        period: "",
        entered: 0,
        revision: "",
        drawn: [],
        spent: new Map(),
        answered: [],
        life: new Map(),
        calls: new Map(),
        parts: new Map(),
        split: [],
        costs: { life: [], calls: [] },
      };
      this.#all.set(survey, mine);
    }
    this.#mine = mine;
  }

  /** Return the accounts of all surveys as text, for the ledger. */
  dump(): string {
    return JSON.stringify(
      [...this.#all].map(([survey, mine]) => [
        survey,
        {
          ...mine,
          spent: [...mine.spent],
          life: listed(mine.life),
          calls: listed(mine.calls),
          parts: [...mine.parts],
        },
      ]),
    );
  }

  /** How many times each epsilon was spent, by attribute of this survey. */
  get life(): Spent {
    return this.#mine.life;
  }

  /** Return the questions that were ever reported and asked an attribute, by any revision. */
  questions(attribute: string): string[] {
    const { calls, life, parts } = this.#mine;
    const reported = new Set([...calls.keys(), ...life.keys()]);
    return [...reported].filter((name) => (parts.get(name) ?? [name]).includes(attribute));
  }

  /** Tell whether a question was reported in a period. */
  wasReported(period: string, name: string): boolean {
    return this.#mine.period === period && this.#mine.spent.has(name);
  }

  /**
   * Return the name of the period at `now`, and whether an answer would enter it anew.
   *
   * Throws `Trouble` where it may not be answered: it was answered before, it begins more than a day
   * after the server's time (undefined: not known), or it is before one that was answered and the
   * server does not confirm it. Times in milliseconds since 1970.
   */
  check(
    terms: Terms,
    now: number,
    serverTime: number | undefined,
  ): { period: string; begins: boolean } {
    const { plan } = terms;
    const mine = this.#mine;
    const { name: period, begin, end: until } = terms.periodAt(now);
    if (serverTime !== undefined && plan.period && begin > serverTime + AHEAD) {
      throw new Trouble(
        "clock",
        `the clock shows ${period}, more than a day after the server's time, ${new Date(serverTime).toISOString()}; ` +
          "if the clock is right, reach the server or call trustClock()",
      );
    }
    const revised = mine.revision !== plan.revision;
    if (mine.period === period && !revised) return { period, begins: false };
    const { answered } = mine;
    if (answered.some(([first, last]) => begin < last && first < until)) {
      if (revised) {
        throw new Trouble(
          "plan_changed",
          `${period} was answered by revision ${mine.revision.slice(0, 12)}: the new plan counts from the next period on`,
        );
      }
      throw new Trouble("clock", `the clock shows ${period}, which was answered and left`);
    }
    const last = answered.at(-1);
    if (last && begin < last[1] && !(serverTime !== undefined && until > serverTime - AHEAD)) {
      throw new Trouble(
        "clock",
        `the clock shows ${period}, and a later period was answered already; if the clock is right, ` +
          "reach the server or call trustClock()",
      );
    }
    return { period, begins: true };
  }

  /** Enter the period of `now`, drawing its attributes where it begins; return its name. The person's panel is
   * drawn before, where the survey has panels and none was drawn yet. Throws `Trouble` as `check`, with nothing
   * changed. */
  enter(terms: Terms, now: number, serverTime: number | undefined, coins: Coins): string {
    const { period, begins } = this.check(terms, now, serverTime);
    const mine = this.#mine;
    this.#keepPanel(terms, coins);
    this.#keepParts(terms);
    if (begins) {
      Object.assign(mine, {
        period,
        entered: now,
        costs: { life: [], calls: [] },
        revision: terms.plan.revision,
        drawn: terms.draw(coins),
        spent: new Map(),
      });
      mine.since ??= now;
      this.#left = undefined;
      const { begin, end } = terms.periodAt(now);
      add(mine.answered, [begin, end]);
    } else {
      // Where these terms drew the attributes, their sum is within their record's epsilon. Otherwise
      // other terms drew them, or reported some already.
      this.#left = minus(fromDouble(terms.recordEpsilon), sum(mine.spent.values()));
    }
    return period;
  }

  /** The panel that a report by a plan is sent with; 0 where the plan has none. */
  panelOf({ plan }: Terms): number {
    return this.#mine.panels?.[plan.panels] ?? 0;
  }

  /** Draw the person's panel once for each number of panels that a plan of the survey has: an app that goes back to
   * an earlier number goes back to the panel of then. */
  #keepPanel(terms: Terms, coins: Coins): void {
    const { panels } = terms.plan;
    if (panels && !this.panelOf(terms)) {
      this.#mine.panels = { ...this.#mine.panels, [panels]: 1 + uniform(panels, coins) };
    }
  }

  /** Keep which attributes each view asks. A name may be a view's in one revision and an attribute's in
   * another: what was spent by that name then counts for all of them. */
  #keepParts({ plan }: Terms): void {
    const { calls, parts: kept } = this.#mine;
    for (const [name, parts] of plan.recorded) {
      if (!kept.has(name) && parts.length === 1) continue;
      const before = kept.get(name) ?? (calls.has(name) ? [name] : []);
      kept.set(name, [...new Set([...before, ...parts])]);
    }
  }

  /** Tell whether the record of this period reports a question. */
  isDrawn(name: string): boolean {
    return this.#mine.drawn.includes(name);
  }

  /** Tell whether a question may still be reported in this period: once, and while the sums of the period are
   * within the record's epsilon and, on each attribute, within its caps. */
  mayReport(terms: Terms, name: string, epsilon: number, limits: readonly Limits[]): boolean {
    const { spent } = this.#mine;
    if (spent.has(name)) return false;
    if (!this.#left) return true; // the terms, which were checked, bound what one record spends
    if (compare(fromDouble(epsilon), this.#left) > 0) return false;
    return terms.plan.recorded.get(name)!.every((part) => {
      const cap = capOf(terms, part, limits);
      if (cap === Infinity) return true;
      const before = terms.containing.get(part)!.flatMap((each) => spent.get(each) ?? []);
      return compare(sum([...before, epsilon]), fromDouble(cap)) <= 0;
    });
  }

  /** Return the epsilon charged to `calls` for a report; of memos only the first costs. */
  callsCost(terms: Terms, name: string): number {
    return terms.memoizers.has(name) && this.#mine.calls.has(name) ? 0 : cost(terms, name);
  }

  /** Tell whether the caps for life allow `epsilon` more. */
  allows(
    kind: Kind,
    terms: Terms,
    name: string,
    epsilon: number,
    limits: readonly Limits[],
  ): boolean {
    const more = fromDouble(epsilon);
    return !epsilon || limits.every((each) => this.#allows(kind, terms, name, more, each));
  }

  #allows(
    kind: Kind,
    terms: Terms,
    name: string,
    epsilon: Fraction,
    { life, ends, attributeLife }: Limits,
  ): boolean {
    if (life !== undefined) {
      const ever = this.#ever(kind);
      if (compare(plus(ever, epsilon), fromDouble(life)) > 0) return false;
      if (ends !== undefined) {
        const before = minus(ever, sum(this.#mine.costs[kind]));
        if (compare(before, this.#share(life, ends, this.#mine.entered)) > 0) return false;
      }
    }
    return terms.plan.recorded.get(name)!.every((part) => {
      const cap = attributeLife.get(part);
      if (cap === undefined) return true;
      const spent = total(only(this.#mine[kind], this.questions(part)));
      return compare(plus(spent, epsilon), fromDouble(cap)) <= 0;
    });
  }

  /**
   * Return the earliest time to enter a period whose answers the pace of the caps for life allows, in
   * milliseconds; undefined where it allows answers now, and where waiting cannot help: a cap for life
   * is used up, or the survey has one period only.
   */
  resumes(terms: Terms, limits: readonly Limits[], now: number): number | undefined {
    const ever = this.#ever("calls");
    const least = Math.min(...[...terms.answered].map((name) => this.callsCost(terms, name)));
    const paced = limits.filter((each) => each.life !== undefined);
    const next = plus(ever, fromDouble(least < Infinity ? least : 0));
    if (
      !(ever.n && least > 0 && terms.plan.period) ||
      paced.some((c) => compare(next, fromDouble(c.life!)) > 0)
    ) {
      return undefined;
    }
    const period = terms.periodAt(now);
    const moments = [now];
    let [at, before] = [now, ever];
    if (this.#mine.period === period.name) {
      at = this.#mine.entered;
      moments[0] = period.end;
      before = minus(before, sum(this.#mine.costs.calls));
    }
    let blocked = false;
    for (const { life, ends } of paced) {
      if (ends === undefined) continue;
      blocked ||= compare(before, this.#share(life!, ends, at)) > 0;
      const first = this.#first;
      const [n, d] = [
        ever.n * fromDouble(life!).d * BigInt(ends - first),
        ever.d * fromDouble(life!).n,
      ];
      moments.push(first + Number((n + d - 1n) / d));
    }
    return blocked ? Math.max(...moments) : undefined;
  }

  /** Return the part of a paced cap whose time has passed at `at`. */
  #share(life: number, ends: number, at: number): Fraction {
    const [passed, all] = [Math.floor(at - this.#first), ends - this.#first];
    if (all <= 0 || passed >= all) return fromDouble(life);
    // The clock may be before the first answer's time: then nothing has passed.
    return times(fromDouble(life), fraction(BigInt(Math.max(0, passed)), BigInt(all)));
  }

  /** When a pace begins: at the person's first answer. */
  get #first(): number {
    return Math.floor(Math.min(...[...this.#all.values()].map((each) => each.since ?? Infinity)));
  }

  #ever(kind: Kind): Fraction {
    return total([...this.#all.values()].flatMap((each) => [...each[kind].values()]));
  }

  /** Note a report of `epsilon` in this period, and charge its costs. `delta` is that of a record that is split between
   * two servers; undefined of other reports. */
  report(
    name: string,
    epsilon: number,
    costs: Readonly<Record<Kind, number>>,
    delta?: number,
  ): void {
    const mine = this.#mine;
    if (costs.life && delta !== undefined) {
      const same = mine.split.find(
        (each) => each[0] === name && each[1] === costs.life && each[2] === delta,
      );
      if (same) same[3]++;
      else mine.split.push([name, costs.life, delta, 1]);
    }
    mine.spent.set(name, epsilon);
    if (this.#left) this.#left = minus(this.#left, fromDouble(epsilon));
    for (const kind of ["life", "calls"] as const) {
      const spent = costs[kind];
      if (!spent) continue;
      const often = mine[kind].get(name) ?? new Map<number, number>();
      mine[kind].set(name, often.set(spent, (often.get(spent) ?? 0) + 1));
      mine.costs[kind].push(spent);
    }
  }

  /** Return what records that were split between two servers spent on some questions: the sums of their epsilons and of
   * their deltas. */
  split(names: readonly string[]): { epsilon: number; delta: number } {
    const spent = { epsilon: 0, delta: 0 };
    for (const [name, epsilon, delta, often] of this.#mine.split) {
      if (!names.includes(name)) continue;
      spent.epsilon += epsilon * often;
      spent.delta += delta * often;
    }
    return spent;
  }

  /** Return the epsilon that the caps for life leave an attribute; undefined without such caps. */
  left(name: string, limits: readonly Limits[]): number | undefined {
    const left: number[] = [];
    for (const { life, attributeLife } of limits) {
      const cap = attributeLife.get(name);
      if (life !== undefined) left.push(below(life, this.#ever("life")));
      if (cap !== undefined)
        left.push(below(cap, total(only(this.#mine.life, this.questions(name)))));
    }
    return left.length ? Math.min(...left) : undefined;
  }
}

/** Return cap - spent as a double, for people; at least 0. */
function below(cap: number, spent: Fraction): number {
  const { n, d } = minus(fromDouble(cap), spent);
  return n <= 0n ? 0 : Number((n << 64n) / d) / 2 ** 64;
}

function minus(a: Fraction, b: Fraction): Fraction {
  return plus(a, fraction(-b.n, b.d));
}

function only(spent: Spent, names: readonly string[]): ReadonlyMap<number, number>[] {
  return names.flatMap((name) => spent.get(name) ?? []);
}

/** Add a time range that overlaps no other, and join it with adjacent ones. */
function add(answered: [number, number][], stretch: [number, number]): void {
  answered.push(stretch);
  answered.sort(([a], [b]) => a - b);
  for (let i = answered.length - 1; i > 0; i--) {
    if (answered[i - 1]![1] === answered[i]![0]) join(answered, i);
  }
  while (answered.length > STRETCHES) join(answered, 1);
}

/** Make one range of a range and the one before it. */
function join(answered: [number, number][], at: number): void {
  answered[at - 1]![1] = answered[at]![1];
  answered.splice(at, 1);
}

/** Return how often each epsilon was spent as lists. Lists are kept, and maps are used, because an attribute
 * may be called "__proto__", and what is spent on it must count. */
function listed(spent: Times): List {
  return [...spent].map(([name, often]) => [name, [...often]]);
}

function mapped(list: List): Times {
  return new Map(list.map(([name, often]) => [name, new Map(often)]));
}

function read(kept: Kept): Survey {
  return {
    ...kept,
    spent: new Map(kept.spent),
    life: mapped(kept.life),
    calls: mapped(kept.calls),
    parts: new Map(kept.parts),
    split: kept.split ?? [],
  };
}
