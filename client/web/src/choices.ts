/** Choices made before any answer is known: the app's agreement, a person's level, the caps. */

import { type Agreement, checkAgreement } from "./agreement.js";
import { type Fraction, fraction, fromDouble, plus, times } from "./core/exact.js";
import { at, InvalidInput } from "./errors.js";
import { sha256 } from "./plans/digest.js";
import { end } from "./plans/period.js";
import type { Plan } from "./plans/plan.js";

/**
 * Upper limits on epsilon, set by an app or a person; what is left out sets no limit.
 *
 * `life` is for all that a person ever reports from this ledger, over all its surveys; `until` spreads
 * it over the time until the end of that year, month or day (UTC): "2027", "2027-12" or "2027-12-31".
 * A period's answers are then taken once the epsilon spent before is at most the share of `life` that
 * corresponds to the time that has passed; the first answers at once. When that time is over, all that
 * is left may be spent at once. `attribute` is for all that one period spends on an attribute, which is one
 * report unless views share it, and `attributeLife` for all reports.
 */
export interface Caps {
  readonly life?: number;
  readonly until?: string;
  readonly attribute?: Readonly<Record<string, number>>;
  readonly attributeLife?: Readonly<Record<string, number>>;
}

/** Caps that were checked, with the end of the time over which `life` is spread, in milliseconds. */
export interface Limits {
  readonly life: number | undefined;
  readonly ends: number | undefined;
  readonly attribute: ReadonlyMap<string, number>;
  readonly attributeLife: ReadonlyMap<string, number>;
}

const UNITS: readonly [string, RegExp][] = [
  ["P1Y", /^\d{4}$/],
  ["P1M", /^\d{4}-\d\d$/],
  ["P1D", /^\d{4}-\d\d-\d\d$/],
];

/** Return caps as limits; throw `InvalidInput` unless each is finite and >= 0, and `until` is a period. */
export function limitsOf(caps: Caps): Limits {
  const { life, until } = checked(caps, ["life", "until", "attribute", "attributeLife"], "caps");
  const maps = [entries(caps.attribute), entries(caps.attributeLife)];
  for (const [name, cap] of [...(life === undefined ? [] : [["life", life]]), ...maps.flat()]) {
    if (!(typeof cap === "number" && cap >= 0 && cap < Infinity)) {
      throw new InvalidInput(`the cap ${name} must be finite and >= 0, got ${cap}`);
    }
  }
  let ends: number | undefined;
  if (until !== undefined) {
    const [unit] = UNITS.find(([, form]) => form.test(`${until}`)) ?? [];
    if (!unit || life === undefined) {
      throw new InvalidInput(
        `until spreads a cap for life (give life, too) up to a year, month or day such as "2027-12", got ${shown(until)}`,
      );
    }
    ends = Math.min(end(unit, until as string), Date.UTC(10_000, 0)); // the end of time is Infinity
  }
  const [attribute, attributeLife] = maps.map((each) => new Map(each as [string, number][]));
  return {
    life: life as number | undefined,
    ends,
    attribute: attribute!,
    attributeLife: attributeLife!,
  };
}

/** Tell whether a cap depends on all epsilon that was ever spent. */
export function countForLife(limits: Limits): boolean {
  return limits.life !== undefined || limits.attributeLife.size > 0;
}

/** An app's agreement on a survey, which holds whatever its server sends. */
export interface Agreed {
  readonly survey: string;
  /** The most that one record may spend; undefined where an `agreement` lists the levels. */
  readonly epsilon: number | undefined;
  readonly revision: string | undefined;
  readonly mayReveal: ReadonlyMap<string, readonly string[]>;
  /** By attribute and map. */
  readonly mayRevealByMap: ReadonlyMap<string, ReadonlyMap<string, readonly string[]>>;
  readonly mayTellChanges: readonly string[];
  readonly agreement: Agreement | undefined;
  /** The most panels that people may be divided into; 0: none. */
  readonly panels: number;
  /** The most delta of a record that is split between two servers; undefined where the app ships the plan or its
   * revision, and sets no limit besides. */
  readonly delta: number | undefined;
}

/**
 * Throw `InvalidInput` unless a plan's bytes have the revision agreed to, before they are parsed: a server cannot
 * make the app read anything else. Where there is an `agreement`, `checkAgreed` tells instead in what a plan differs.
 */
export async function checkRevision(agreed: Agreed, data: Uint8Array): Promise<void> {
  if (agreed.revision === undefined || agreed.agreement) return;
  const found = await sha256(data);
  if (found !== agreed.revision) {
    throw new InvalidInput(
      `expected revision ${agreed.revision} of ${shown(agreed.survey)}, the server has ${found}`,
    );
  }
}

/**
 * Throw `InvalidInput` unless the plan fits the agreement.
 *
 * That is: it is of this survey, has the domains and levels of the agreement, and could
 * neither reveal a value nor tell when an answer changes or comes back unless `mayReveal` or `mayTellChanges` allows
 * it, nor link a person's reports by more than `panels`, nor split records at more than `delta`. Attributes that are
 * withheld are never sent.
 */
export function checkAgreed(agreed: Agreed, plan: Plan, withheld: ReadonlySet<string>): void {
  if (plan.survey !== agreed.survey) {
    throw new InvalidInput(
      `asked for the survey ${shown(agreed.survey)}, got ${shown(plan.survey)}`,
    );
  }
  if (agreed.agreement) checkAgreement(agreed.agreement, plan);
  if (plan.panels > agreed.panels) {
    throw new InvalidInput(
      `${shown(plan.survey)} has ${plan.panels} panels: a person's panel is drawn once, and sent in the clear ` +
        `with each report for the life of the survey; if that is meant, pass panels: ${plan.panels}`,
    );
  }
  const { twoServers } = plan;
  if (twoServers && agreed.delta !== undefined && twoServers.delta > agreed.delta) {
    throw new InvalidInput(
      `${shown(plan.survey)} splits records between two servers at delta ${twoServers.delta}, and the app allows ` +
        `${agreed.delta}: a record's epsilon fails with this probability, and deltas of records add up; if that is ` +
        `meant, pass delta: ${twoServers.delta}`,
    );
  }
  for (const name of [...agreed.mayReveal.keys(), ...agreed.mayTellChanges, ...withheld]) {
    if (!plan.attributes.has(name)) throw new InvalidInput(noAttribute(plan, name));
  }
  for (const [name, maps] of agreed.mayRevealByMap) {
    for (const map of maps.keys()) domainOf(plan, name, map);
  }
  const revealing = revealedBy(plan);
  for (const [name, { domain, memo }] of plan.attributes) {
    if (withheld.has(name)) continue;
    if (memo && !agreed.mayTellChanges.includes(name)) {
      throw new InvalidInput(
        `answers to ${shown(name)} are memoised, so reports tell when they change, and when an earlier one comes back; if that is meant, ` +
          `pass mayTellChanges: [${shown(name)}]`,
      );
    }
    const ordinary = revealing.get(name);
    if (!ordinary) continue;
    const revealed = at(`mayReveal[${shown(name)}]`, () =>
      domain.notAmong(agreed.mayReveal.get(name) ?? []),
    );
    if (revealed.length) {
      throw new InvalidInput(
        `a report of ${shown(name)} may reveal ${revealed.join(" or ")}; if that is meant, ` +
          `pass mayReveal: {${shown(name)}: ${shown(ordinary)}}`,
      );
    }
  }
}

/**
 * Return the values, or ranges of numbers, that a report may reveal, whatever the maps, by attribute of those
 * that have any.
 *
 * A view reveals values of its attributes only where all of them have ordinary ones.
 */
export function revealedBy(plan: Plan): Map<string, readonly string[]> {
  const revealing = [...plan.questions.values()].filter(({ domain }) => domain.ordinary.length);
  const asked = new Set(revealing.flatMap(({ parts }) => parts));
  const found = new Map<string, readonly string[]>();
  for (const [name, { domain }] of plan.attributes) {
    if (asked.has(name)) found.set(name, domain.ordinary);
  }
  return found;
}

/**
 * Throw `InvalidInput` unless the plan has a map of an attribute, and could reveal only values with it that
 * the app's `mayReveal` allows, for the map or for the attribute. Attributes that are withheld reveal nothing.
 */
export function checkMap(
  agreed: Agreed,
  plan: Plan,
  name: string,
  map: string,
  withheld: ReadonlySet<string>,
): void {
  const { ordinary } = domainOf(plan, name, map);
  if (withheld.has(name)) return;
  const allowed = new Set([
    ...(agreed.mayRevealByMap.get(name)?.get(map) ?? []),
    ...(agreed.mayReveal.get(name) ?? []),
  ]);
  const revealed = ordinary.filter((value) => !allowed.has(value));
  if (revealed.length) {
    throw new InvalidInput(
      `a report of ${shown(name)} by the map ${shown(map)} may reveal ${revealed.join(" or ")}; if that ` +
        `is meant, pass mayReveal: {${shown(name)}: {${shown(map)}: ${shown(ordinary)}}}`,
    );
  }
}

/** Return the domain of an attribute as those have it who chose a map ("": none); throw `InvalidInput` where
 * the plan lacks the attribute or the map. */
function domainOf(plan: Plan, name: string, map: string): { ordinary: readonly string[] } {
  const attribute = plan.attributes.get(name);
  if (!attribute) throw new InvalidInput(noAttribute(plan, name));
  const { domain } = attribute;
  if (domain.maps.size) return domain.chosen(map);
  if (map) throw new InvalidInput(`${shown(name)} has no maps, got ${shown(map)}`);
  return { ordinary: [] };
}

/** One person's level (undefined: the survey's default), levels and maps chosen for some attributes, and the values
 * of public properties. */
export interface Choices {
  readonly level: string | undefined;
  readonly levels: readonly (readonly [string, string])[];
  readonly maps: readonly (readonly [string, string])[];
  readonly properties: readonly (readonly [string, string])[];
}

/** Return choices; throw `InvalidInput` for a level, a map or a property's value that is no text. */
export function choicesOf(
  level: unknown,
  levels: unknown,
  maps: unknown,
  properties: unknown,
): Choices {
  const named = (what: string, names: unknown[]): void => {
    for (const each of names) {
      if (typeof each !== "string") throw new InvalidInput(`${what} is a name, got ${shown(each)}`);
    }
  };
  const [chosen, byMap, told] = [entries(levels), entries(maps), entries(properties)];
  named("a level", [level ?? "", ...chosen.map(([, other]) => other)]);
  named(
    "a map",
    byMap.map(([, map]) => map),
  );
  named(
    "the value of a property",
    told.map(([, value]) => value),
  );
  return {
    level: (level ?? undefined) as string | undefined,
    levels: chosen as [string, string][],
    maps: byMap as [string, string][],
    properties: told as [string, string][],
  };
}

/**
 * Return the value of each declared property, "" for one that is not given or not declared, and in words which
 * values are not.
 *
 * Throws `InvalidInput`, naming those declared, for another property.
 */
export function told(
  declared: ReadonlyMap<string, readonly string[]>,
  given: Choices["properties"],
): { properties: string[]; undeclared: string } {
  const sent = new Map<string, string>();
  const wrong: string[] = [];
  for (const [name, value] of given) {
    const values = declared.get(name);
    if (!values) {
      const known = [...declared.keys()].join(", ") || "none";
      throw new InvalidInput(`the survey has no property ${shown(name)}; it declares ${known}`);
    }
    if (values.includes(value)) sent.set(name, value);
    else if (value) {
      wrong.push(
        `the property ${shown(name)} has no value ${shown(value)}; the survey declares ` +
          `${values.join(", ")}: none is sent`,
      );
    }
  }
  return {
    properties: [...declared.keys()].map((name) => sent.get(name) ?? ""),
    undeclared: wrong.join("; "),
  };
}

/** Throw `InvalidInput` for a property that the app's agreement does not declare. */
export function checkDeclared(agreed: Agreed, choices: Choices): void {
  if (agreed.agreement) {
    told(new Map(Object.entries(agreed.agreement.properties ?? {})), choices.properties);
  }
}

/** Return the error message for an attribute that a plan lacks. */
export function noAttribute(plan: Plan, name: string): string {
  return `${shown(plan.survey)} has no attribute ${shown(name)}; it has ${[...plan.attributes.keys()].join(", ")}`;
}

/** How often each epsilon was spent, by attribute. */
export type Spent = ReadonlyMap<string, ReadonlyMap<number, number>>;

/** Return the exact sum of epsilons, given how often each was spent. */
export function total(spent: Iterable<ReadonlyMap<number, number>>): Fraction {
  let found = fraction(0n);
  for (const byEpsilon of spent) {
    for (const [epsilon, often] of byEpsilon) {
      found = plus(found, times(fromDouble(epsilon), fraction(BigInt(often))));
    }
  }
  return found;
}

/** Return a value as an error shows it, cut short. */
export function shown(value: unknown): string {
  let text: string | undefined;
  try {
    text = value === undefined ? "absent" : JSON.stringify(value);
  } catch {
    // a bigint, or what holds itself
  }
  text ??= typeof value;
  return text.length <= 200 ? text : `${text.slice(0, 200)}...`;
}

/** Return the entries of a plain object that maps names; throw `InvalidInput` for anything else. */
export function entries(map: unknown): [string, unknown][] {
  if (map === undefined) return [];
  if (typeof map !== "object" || map === null || Array.isArray(map)) {
    throw new InvalidInput(`expected an object such as {name: ...}, got ${shown(map)}`);
  }
  return Object.entries(map);
}

/** Return an object whose keys are all known; throw `InvalidInput` for others, such as misspelt ones. */
export function checked<T extends object>(given: T, known: readonly string[], what: string): T {
  if (typeof given !== "object" || given === null) {
    throw new InvalidInput(
      `${what} is given as an object of ${known.join(", ")}, got ${shown(given)}`,
    );
  }
  for (const [name] of entries(given)) {
    if (!known.includes(name)) {
      throw new InvalidInput(`${what} has no ${shown(name)}; it has ${known.join(", ")}`);
    }
  }
  return given;
}
