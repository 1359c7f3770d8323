/** Randomise answers: where a report is drawn, afresh or from a memo, and its epsilon is spent. */

import type { Limits } from "../choices.js";
import type { Coins } from "../coins.js";
import type { Value } from "../mechanisms/mechanism.js";
import type { Encoded, Kind } from "../plans/kinds/index.js";
import type { Memoizer } from "../plans/memo.js";
import type { Question } from "../plans/plan.js";
import { get, put, type Work } from "../storage/store.js";
import type { Account } from "./account.js";
import { type Code, type Places, unhex } from "./places.js";
import type { Terms } from "./terms.js";

/** Answers by attribute as domains encode them; undefined stands for one outside the domain. */
export type Values = ReadonlyMap<string, Encoded | undefined>;

/** What is drawn for one record. */
export interface Drawn {
  /** The attributes that are reported, by one question at least. */
  readonly taken: readonly string[];
  /** The codes of the questions. */
  readonly codes: readonly Code[];
  /** The keys of new memos. */
  readonly memos: readonly string[];
  /** The reasons why other answers were left out, by attribute. */
  readonly dropped: ReadonlyMap<string, string>;
}

/**
 * Randomise the answers that the account and caps allow, in a transaction.
 *
 * `values` are by attribute, as domains encode them; undefined stands for an answer outside the domain. A
 * view is reported where all its attributes are there. The account spends the epsilon of each report. `salt`
 * is the ledger's.
 *
 * Guarantee: each code is drawn by a mechanism of the plan from the answer, or from a value drawn
 * uniformly from the domain where there is no answer or no epsilon left for its memo; which codes are
 * added does not depend on the values.
 */
export function* randomize(
  values: Values,
  terms: Terms,
  account: Account,
  limits: readonly Limits[],
  place: { places: Places; person: string; salt: string },
  coins: Coins,
): Work<Drawn> {
  const codes: Code[] = [];
  const drawn: string[] = [];
  const dropped = new Map<string, string>();
  for (const { name, parts, domain } of askedAbout(values, terms)) {
    const mechanism = terms.mechanisms.get(name)!;
    const { epsilon } = mechanism;
    const calls = account.callsCost(terms, name);
    if (!account.isDrawn(name)) {
      dropped.set(name, "idle");
      continue;
    }
    if (!parts.every((part) => values.has(part))) {
      dropped.set(name, "incomplete");
      continue;
    }
    if (
      !account.mayReport(terms, name, epsilon, limits) ||
      !account.allows("calls", terms, name, calls, limits)
    ) {
      dropped.set(name, "spent");
      continue;
    }
    const memoizer = terms.memoizers.get(name);
    let code: Uint8Array;
    let life: number;
    if (memoizer) {
      const prefix = place.places.memos(place.person, name, memoizer.identity);
      const blank = (): Memoised => domain.anything(coins) as Memoised;
      const memos = new Memos(prefix, unhex(place.salt), memoizer, drawn, blank, coins);
      const affordable = account.allows("life", terms, name, memoizer.epsilon, limits);
      const { memo, isNew } = yield* memos.of(values.get(name) as Memoised | undefined, affordable);
      life = isNew ? memoizer.epsilon : 0;
      code = memoizer.report(memo, coins);
    } else {
      life = account.allows("life", terms, name, calls, limits) ? calls : 0;
      const value = life
        ? valueOf(parts, values, terms.plan.attributes, coins)
        : domain.settled(domain.anything(coins), coins);
      code = mechanism.randomize(value, coins);
    }
    account.report(name, epsilon, { calls, life });
    const map = terms.maps.get(name);
    const level = terms.levels.get(name)!.name;
    codes.push({ attribute: name, level, codes: code, ...(map !== undefined && { map }) });
  }
  const reported = new Set(codes.map((each) => each.attribute));
  return { codes, memos: drawn, ...byAttribute(values, terms, reported, dropped) };
}

/** Return the questions about some attributes that may be reported: attributes in no view as given, then views. */
function askedAbout(values: Values, terms: Terms): Question[] {
  const { questions } = terms.plan;
  const alone = [...values.keys()].flatMap((name) => questions.get(name) ?? []);
  if (alone.length === values.size) return alone;
  const isAsked = ({ name, parts }: Question): boolean =>
    parts.length > 1 && terms.answered.has(name) && parts.some((part) => values.has(part));
  return [...alone, ...[...questions.values()].filter(isAsked)];
}

/** Return what a question's mechanism takes. For an answer outside the domain a value drawn uniformly from the
 * attribute's domain takes its place: whether a report leaves must not tell whether there is an answer. */
export function valueOf(
  parts: readonly string[],
  values: Values,
  attributes: ReadonlyMap<string, { readonly domain: Kind }>,
  coins: Coins,
): Value {
  const answers = parts.map((part) => {
    const { domain } = attributes.get(part)!;
    const value = domain.settled(values.get(part) ?? domain.anything(coins), coins);
    return { size: domain.size, value };
  });
  if (answers.length === 1) return answers[0]!.value;
  // The category of a combination of categories: the last attribute's changes first.
  return answers.reduce((category, { size, value }) => category * size + (value as number), 0);
}

/** Return the attributes that a report has, and for each other one why it does not: of an attribute in several
 * views the reason of one that was drawn, where any was. */
function byAttribute(
  values: Values,
  terms: Terms,
  reported: ReadonlySet<string>,
  dropped: ReadonlyMap<string, string>,
): Pick<Drawn, "taken" | "dropped"> {
  const taken: string[] = [];
  const reasons = new Map<string, string>();
  for (const name of values.keys()) {
    const asked = terms.containing.get(name)!.filter((each) => terms.answered.has(each));
    if (asked.some((each) => reported.has(each))) taken.push(name);
    else {
      const found = asked.map((each) => dropped.get(each)!);
      reasons.set(name, found.find((reason) => reason !== "idle") ?? found[0] ?? "withheld");
    }
  }
  return { taken, dropped: reasons };
}

/** The key of the bytes that the device drew once, before any answer. */
const DEVICE = "device";

/** The key of the memo of a random value: it is reported for answers outside the domain, and for new
 * ones that a cap for life leaves no epsilon for. It says nothing of any answer. */
const BLANK = "blank";

/** A value that a memo may be of: a category or a word. No others have memos. */
type Memoised = number | string;

/** The memos of one person, attribute and mechanism, in one transaction. */
class Memos {
  constructor(
    private readonly prefix: string,
    private readonly salt: Uint8Array,
    private readonly memoizer: Memoizer,
    private readonly drawn: string[],
    private readonly anything: () => Memoised,
    private readonly coins: Coins,
  ) {}

  /**
   * Return the memo of a value, and whether it is a new one that has to be paid for.
   *
   * Where there is no value, or its memo would be new and is not `affordable`, returns the memo of a
   * random value, which costs nothing.
   */
  *of(
    value: Memoised | undefined,
    affordable: boolean,
  ): Work<{ memo: Uint8Array; isNew: boolean }> {
    const [kept, blank] = yield* get(this.prefix + DEVICE, this.prefix + BLANK);
    const device: Uint8Array =
      kept ?? (yield* this.#keep(DEVICE, this.memoizer.enroll(this.coins)));
    if (value !== undefined) {
      const key = this.memoizer.hidden(this.salt, this.memoizer.key(device, value));
      const [memo] = yield* get(this.prefix + key);
      if (memo) return { memo, isNew: false };
      if (affordable) return { memo: yield* this.#draw(key, device, value), isNew: true };
    }
    return { memo: blank ?? (yield* this.#draw(BLANK, device, this.anything())), isNew: false };
  }

  *#draw(key: string, device: Uint8Array, value: Memoised): Work<Uint8Array> {
    return yield* this.#keep(key, this.memoizer.memoize(device, value, this.coins));
  }

  *#keep(key: string, bytes: Uint8Array): Work<Uint8Array> {
    yield* put(this.prefix + key, bytes);
    this.drawn.push(this.prefix + key);
    return bytes;
  }
}
