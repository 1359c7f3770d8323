/** The agreement on a survey that is built into an app, and holds whatever a server sends. */

import { revealedBy, shown } from "./choices.js";
import { InvalidInput } from "./errors.js";
import type { Plan } from "./plans/plan.js";
import { compareBytes } from "./plans/protobuf.js";

/**
 * An app's agreement on a survey's plan; `hearsay codegen --typescript` writes it from the survey file.
 *
 * `plan` is the plan itself, so that the app works before it has reached the server; without it the
 * first plan that comes must fit.
 */
export interface Agreement {
  readonly survey: string;
  /** The SHA-256 of the plan: 64 lower-case hexadecimal digits. */
  readonly revision: string;
  /** The survey's time unit: PT1H, P1D, P1W, P1M or P1Y; "" for one record per person, ever. */
  readonly period: string;
  /** By attribute: the values in the survey's order, or [low, high] of a number, or the edges of its bins, or of words
   * the alphabet, the most letters as "12 at most", and the candidates. */
  readonly domains: Readonly<Record<string, readonly string[] | readonly number[]>>;
  /** The epsilon of one whole record, by level. */
  readonly levels: Readonly<Record<string, number>>;
  readonly defaultLevel?: string;
  /** The ordinary values that a report may reveal, by attribute with sensitive values. */
  readonly mayReveal?: Readonly<Record<string, readonly string[]>>;
  /** The sensitive values of each map, by attribute and by the map's name. A report of somebody who chose the
   * map may reveal the other values. */
  readonly maps?: Readonly<Record<string, Readonly<Record<string, readonly string[]>>>>;
  /** The memoised attributes: their reports may tell when an answer changes or comes back. */
  readonly mayTellChanges?: readonly string[];
  /** The attributes that are asked together. */
  readonly views?: readonly (readonly string[])[];
  /** Into how many panels people are divided; a person's panel is drawn once, and sent in the clear with every
   * report of the survey: it links them. */
  readonly panels?: number;
  /** The values of each public property, which the app may give in the clear. */
  readonly properties?: Readonly<Record<string, readonly string[]>>;
  /** The plan's bytes in base64. */
  readonly plan?: string;
}

/** Throw `InvalidInput`, naming the first difference, unless this is the plan that was agreed to. */
export function checkAgreement(agreement: Agreement, plan: Plan): void {
  const domains: [string, unknown][] = [];
  const maps: [string, unknown][] = [];
  const mayTellChanges: string[] = [];
  for (const [name, { domain, memo }] of plan.attributes) {
    domains.push([name, domain.labels]);
    if (domain.maps.size) maps.push([name, [...domain.maps]]);
    if (memo) mayTellChanges.push(name);
  }
  const differs = (place: string, agreed: unknown, offered: unknown): void => {
    if (JSON.stringify(agreed) === JSON.stringify(offered)) return;
    throw new InvalidInput(
      `the plan of ${shown(plan.survey)} is not what the app agreed to: ${place} is ${shown(offered)}, ` +
        `the app expects ${shown(agreed)}`,
    );
  };
  const differ = (
    place: string,
    agreed: object | undefined,
    offered: [string, unknown][],
  ): void => {
    const [mine, theirs] = [new Map(Object.entries(agreed ?? {})), new Map(offered)];
    for (const key of [...mine.keys(), ...theirs.keys()]) {
      differs(`${place}[${shown(key)}]`, mine.get(key), theirs.get(key));
    }
  };
  differs("survey", agreement.survey, plan.survey);
  differs("period", agreement.period, plan.period);
  differ("domains", agreement.domains, domains);
  differ(
    "levels",
    agreement.levels,
    [...plan.levels].map(([name, level]) => [name, level.epsilon]),
  );
  differs("defaultLevel", agreement.defaultLevel ?? "", plan.defaultLevel);
  differ("mayReveal", agreement.mayReveal, [...revealedBy(plan)]);
  const agreed = Object.entries(agreement.maps ?? {}).map(([name, each]) => [name, listed(each)]);
  differ("maps", Object.fromEntries(agreed), maps);
  differs("mayTellChanges", agreement.mayTellChanges ?? [], mayTellChanges);
  const views = [...plan.questions.values()].map(({ parts }) => parts);
  differs(
    "views",
    agreement.views ?? [],
    views.filter((parts) => parts.length > 1),
  );
  differs("panels", agreement.panels ?? 0, plan.panels);
  differ("properties", agreement.properties, [...plan.properties]);
  // Last: it differs where anything else does, and tells people the least.
  differs("revision", agreement.revision, plan.revision);
}

/** Return the maps of an attribute in the order of their names, as a plan has them. */
function listed(maps: Readonly<Record<string, readonly string[]>>): [string, readonly string[]][] {
  const utf8 = new TextEncoder();
  return Object.entries(maps).sort(([a], [b]) => compareBytes(utf8.encode(a), utf8.encode(b)));
}
