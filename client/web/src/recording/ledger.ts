/** Accounts of people in a store: spend, memo and report in one transaction. */

import { type Caps, countForLife, type Limits, limitsOf } from "../choices.js";
import type { Coins } from "../coins.js";
import { InvalidInput } from "../errors.js";
import { type Durability, get, put, type Store, transact, type Work } from "../storage/store.js";
import { Trouble } from "../trouble.js";
import { Account, AHEAD } from "./account.js";
import { sizeOf } from "./batches.js";
import * as outbox from "./outbox.js";
import {
  EMPTY,
  hex,
  LEDGER,
  type LedgerRow,
  NOBODY,
  type PersonRow,
  Places,
  unhex,
  VERSION,
} from "./places.js";
import { type Drawn, randomize, type Values } from "./randomize.js";
import { checkLimits, cost, isForLife, type Terms } from "./terms.js";

/** The outcome of each answer of one `record`, by attribute name. */
export interface Recorded {
  /** The attributes whose reports are queued. */
  readonly taken: readonly string[];
  /** The reason of each other one: "idle", "spent", "withheld", "unknown", or a `Reason`. */
  readonly dropped: Readonly<Record<string, string>>;
  /** The names in `taken` whose answer was outside the domain: a random value was reported in its
   * place, so that no report tells it. */
  readonly invalid: readonly string[];
}

/**
 * The epsilon spent on one attribute, and the epsilon that its caps leave. A report of a view counts for each
 * attribute in it, with all of its epsilon, so that the sum over attributes may be more than was spent.
 */
export interface Spending {
  readonly attribute: string;
  /** The cost of one report, or for a memoised attribute of each new memo; of an attribute in views the most
   * that one record spends on it. */
  readonly epsilon: number;
  /** How often it was spent. */
  readonly reports: number;
  /** The sum ever spent. */
  readonly life: number;
  /** The part of `life` that was spent on records that are split between two servers. Together they are
   * (`split`, `delta`)-DP, of sums, against either server while the other one is honest; the other reports hold against
   * everybody. A ledger that was written before records were told apart here counts its split ones among the others. */
  readonly split: number;
  /** The sum of these records' deltas. */
  readonly delta: number;
  /** The epsilon that the lowest cap for life still allows; undefined without such a cap. */
  readonly left: number | undefined;
  /** Whether this period's report was made. */
  readonly answered: boolean;
}

/** A moment: by the device's clock, and by the server's (undefined: not known), in milliseconds. */
export interface Moment {
  readonly now: number;
  readonly serverTime: number | undefined;
}

/** What one `record` did: the names taken, the reasons of the others, and the queue after it. */
export interface Outcome {
  readonly taken: readonly string[];
  readonly dropped: ReadonlyMap<string, string>;
  /** Reports and bytes that wait, and reports that were dropped for want of room. */
  readonly rows: number;
  readonly size: number;
  readonly overflow: number;
}

/** Most people whose keys, and the app's word about whom, are in memory: the latest. */
const REMEMBERED = 10_000;

/** The ledger was cleared and made anew since it was opened. */
class Replaced extends Error {}

/**
 * The privacy accounts in a store. The epsilons of one person's reports add up, over attributes,
 * periods and surveys (sequential composition), in exact arithmetic.
 */
export class Ledger {
  #opening: Promise<LedgerRow> | undefined;
  /** The id of the ledger that was opened last, which stays when it is to be opened again. */
  #id: string | undefined;
  readonly #keys = new Map<string, string>();
  readonly #vouched = new Map<string, Promise<boolean>>();
  /** Then there was a ledger before this one, whatever the app says. */
  #wasReplaced = false;

  /** `vouched` is the app's function; `onReplaced` is called when another ledger took the place. */
  constructor(
    readonly store: Store,
    readonly places: Places,
    private readonly clock: () => number,
    private readonly vouched: ((person: string) => boolean | Promise<boolean>) | undefined,
    private readonly onReplaced: () => void,
  ) {}

  /**
   * Randomise the answers that the account and caps allow, and queue them as one report.
   *
   * `values` are as domains encode them; undefined stands for an answer outside the domain. `limits`
   * are the reports and bytes that may wait; the oldest are dropped beyond them. All of it is one
   * transaction: either the epsilon is spent, the memo kept and the report queued, or none of it.
   *
   * Guarantee: whether and in which form a report is queued depends on the plan and on the calls, never
   * on the values: where there is no value, or no epsilon left for its memo, a value drawn uniformly
   * from the domain is reported in its place, and an absent one where a record is split between two servers.
   *
   * `stillTakes` throws where no answer is taken any more: the person may have revoked, or the client been closed, since
   * the call began. Throws `Trouble`, with nothing changed, where no answer may be taken now.
   */
  async record(
    person: string,
    terms: Terms,
    values: Values,
    moment: Moment,
    caps: Limits,
    limits: readonly [number, number],
    coins: Coins,
    stillTakes: () => void,
  ): Promise<Outcome> {
    if (!terms.plan.twoServers)
      return this.#record(person, terms, values, moment, caps, limits, coins, stillTakes);
    const splitting = await import("./splitting.js");
    const { name: period } = terms.periodAt(moment.now);
    for (let given = values; ; given = new Map()) {
      const made = await splitting.splitRecord(terms, given, period, coins);
      const charge = (account: Account, all: readonly Limits[]): Drawn =>
        splitting.charge(made, values, terms, account, all);
      try {
        const split = { id: made.id, charge };
        const more = [coins, stillTakes, split] as const;
        return await this.#record(person, terms, values, moment, caps, limits, ...more);
      } catch (error) {
        if (!(error instanceof splitting.Unaffordable)) throw error;
      }
    }
  }

  /** Record as `record`: a record that is `split` was made before, and `charge` spends its epsilon. */
  async #record(
    person: string,
    terms: Terms,
    values: Values,
    { now, serverTime }: Moment,
    caps: Limits,
    limits: readonly [number, number],
    coins: Coins,
    stillTakes: () => void,
    split?: {
      readonly id: string;
      readonly charge: (account: Account, all: readonly Limits[]) => Drawn;
    },
  ): Promise<Outcome> {
    const vouches = await this.#vouches(person);
    const { places } = this;
    return this.#run("relaxed", person, function* (same, key) {
      const place = Places.person(key);
      const [ledger, row = NOBODY, queue = EMPTY] = yield* same(place, places.queue);
      const { account, all } = accountOf(row, terms, caps);
      const period = account.enter(terms, now, serverTime, coins);
      const vouched = row.vouched || (vouches() && !row.accounts);
      checkVouched(ledger, vouched, terms, now, all);
      const where = { places, person: key, salt: ledger.salt };
      stillTakes();
      const { taken, codes, memos, dropped } = split
        ? split.charge(account, all)
        : yield* randomize(values, terms, account, all, where, coins);
      yield* put(place, { ...row, accounts: account.dump(), vouched } satisfies PersonRow);
      if (!codes.length) return { taken, dropped, rows: 0, size: 0, overflow: 0 };
      const [kept] = yield* get(places.plan);
      if (!kept) yield* put(places.plan, terms.plan.data);
      const { revision } = terms.plan;
      const panel = account.panelOf(terms);
      const report = {
        ...(split && { id: split.id }),
        at: now,
        person: key,
        period,
        revision,
        ...(panel && { panel }),
        ...(terms.properties.length && { properties: terms.properties }),
        size: sizeOf(codes, terms.properties),
        codes,
        memos,
      };
      const { queue: after, overflow } = yield* outbox.add(places, queue, report, limits);
      return { taken, dropped, rows: after.rows, size: after.size, overflow };
    });
  }

  /** Throw `Trouble` where `record` would, without writing; return the time from which the pace of a cap
   * allows answers, as `Account.resumes` does. */
  async check(
    person: string,
    terms: Terms,
    { now, serverTime }: Moment,
    caps: Limits,
  ): Promise<number | undefined> {
    const vouches = await this.#vouches(person);
    return this.#run("read", person, function* (same, key) {
      const [ledger, row = NOBODY] = yield* same(Places.person(key));
      const { account, all } = accountOf(row, terms, caps);
      account.check(terms, now, serverTime);
      checkVouched(ledger, row.vouched || (vouches() && !row.accounts), terms, now, all);
      return account.resumes(terms, all, now);
    });
  }

  /** Return the epsilon spent and left of each attribute, in the plan's order. */
  async spendings(person: string, terms: Terms, caps: Limits, now: number): Promise<Spending[]> {
    const of = (row: PersonRow): Spending[] => {
      const account = new Account(row.accounts, terms.plan.survey);
      const all = [caps, ...own(row, terms.plan.survey)];
      const { name: period } = terms.periodAt(now);
      return [...terms.plan.attributes.keys()].map((name) => {
        const asked = account.questions(name);
        const split = account.split(asked);
        const spent = asked.flatMap((question) => [...(account.life.get(question) ?? [])]);
        return {
          attribute: name,
          epsilon: terms.levels.has(name) ? cost(terms, name) : terms.epsilonOf(name),
          reports: spent.reduce((sum, [, often]) => sum + often, 0),
          life: spent.reduce((sum, [epsilon, often]) => sum + epsilon * often, 0),
          split: split.epsilon,
          delta: split.delta,
          left: account.left(name, all),
          answered: asked.some((question) => account.wasReported(period, question)),
        };
      });
    };
    if (!(await this.exists())) return of(NOBODY);
    return this.#run("read", person, function* (same, key) {
      const [, row = NOBODY] = yield* same(Places.person(key));
      return of(row);
    });
  }

  /** Keep a person's caps: `life` and `until` for all surveys, the others for this one. */
  setOwnCaps(person: string, caps: Caps): Promise<void> {
    const { life: most, until, ...others } = caps;
    const life = {
      ...(most !== undefined && { life: most }),
      ...(until !== undefined && { until }),
    };
    return this.changePerson(person, (row, survey) => ({
      ...row,
      life,
      caps: [...row.caps.filter(([name]) => name !== survey), [survey, others]],
    }));
  }

  /** Change what a person chose, durably, in a transaction that may do more. */
  changePerson(
    person: string,
    change: (row: PersonRow, survey: string) => PersonRow,
    more?: (row: PersonRow, key: string) => Work<boolean>,
  ): Promise<void> {
    const { places } = this;
    return this.#run("strict", person, function* (same, key) {
      const place = Places.person(key);
      const [, row = NOBODY] = yield* same(place);
      if (!more || (yield* more(row, key))) yield* put(place, change(row, places.name));
    });
  }

  /** Whether there is a ledger. None is made before somebody consents: until then the browser keeps
   * nothing but an empty database. */
  async exists(): Promise<boolean> {
    if (this.#opening) return true;
    const [row] = await transact(this.store, "read", () => get(LEDGER));
    return row !== undefined;
  }

  /** Tell whether a person consents to this survey. */
  async consents(person: string): Promise<boolean> {
    const { places } = this;
    if (!(await this.exists())) return false;
    return this.#run("read", person, function* (same, key) {
      const [, row = NOBODY] = yield* same(Places.person(key));
      return row.consents.includes(places.name);
    });
  }

  /** Whether the server has confirmed the clock by which the ledger was made, or need not. */
  async isConfirmed(): Promise<boolean> {
    const row = await this.#open();
    return row.created === null || row.confirmed;
  }

  /**
   * Correct the time at which the ledger was made, once the server confirms the clock: an earlier ledger
   * can have entered periods that begin within a day of `latest`, and no later ones.
   */
  async confirmCreated(latest: number): Promise<void> {
    await this.#run("relaxed", "", function* (same) {
      const [ledger] = yield* same();
      if (ledger.created !== null && !ledger.confirmed) {
        yield* put(LEDGER, { ...ledger, created: latest, confirmed: true } satisfies LedgerRow);
      }
    });
    this.#opening = undefined; // to be read again
  }

  /** Run a transaction that reads the ledger's own row first: once more where another ledger took its
   * place since it was opened, with the keys of that one. */
  async #run<T>(
    durability: Durability,
    person: string,
    work: (same: (...keys: string[]) => Work<[LedgerRow, ...any[]]>, key: string) => Work<T>,
  ): Promise<T> {
    for (let again = false; ; again = true) {
      const { id, salt } = await this.#open();
      const key = await this.#key(person, salt);
      function* same(...keys: string[]): Work<[LedgerRow, ...any[]]> {
        const [ledger, ...rest] = yield* get(LEDGER, ...keys);
        if (ledger?.id !== id) throw new Replaced();
        return [ledger, ...rest];
      }
      try {
        return await transact(this.store, durability, () => work(same, key));
      } catch (error) {
        if (!(error instanceof Replaced)) throw error;
        if (again) throw new Trouble("disk", "the ledger was replaced twice");
        this.#opening = undefined;
      }
    }
  }

  #open(): Promise<LedgerRow> {
    const { store, clock } = this;
    this.#opening ??= transact(store, "read", () => get(LEDGER))
      .then(([row]) => row as LedgerRow | undefined)
      .then(
        (row) =>
          row ??
          transact(store, "strict", function* () {
            const [other] = yield* get(LEDGER);
            if (other) return other as LedgerRow; // another tab was first
            const made: LedgerRow = {
              version: VERSION,
              id: random(),
              salt: random(),
              created: store.inMemory ? null : clock(),
              confirmed: false,
            };
            yield* put(LEDGER, made);
            return made;
          }),
      )
      .then((row) => {
        if (row.version !== VERSION) {
          throw new Trouble(
            "other_schema",
            `the ledger has schema ${row.version}, this version reads ${VERSION}`,
          );
        }
        if (this.#id !== undefined && this.#id !== row.id) {
          this.#wasReplaced = true;
          this.onReplaced();
        }
        this.#id = row.id;
        return row;
      });
    this.#opening.catch(() => {
      this.#opening = undefined;
    });
    return this.#opening;
  }

  /** Return the key of a person in the ledger, the salted hash of the name; "" for the name "". */
  async #key(name: string, salt: string): Promise<string> {
    if (!name) return "";
    let key = this.#keys.get(salt + name);
    if (!key) {
      const text = new TextEncoder().encode(JSON.stringify(name)); // which escapes what is no text
      const salted = new Uint8Array([...unhex(salt), ...text]);
      const digest = await crypto.subtle.digest("SHA-256", salted);
      key = hex(new Uint8Array(digest, 0, 16));
      remember(this.#keys, salt + name, key);
    }
    return key;
  }

  /** Ask the app, once, whether a person has never answered before. */
  async #vouches(person: string): Promise<() => boolean> {
    const { vouched } = this;
    if (!vouched || this.#wasReplaced || (await this.#open()).created === null) return () => false;
    let asked = this.#vouched.get(person);
    if (!asked) {
      // An app's function that throws has vouched for nothing.
      asked = (async () => (await vouched(person)) === true)().catch(() => false);
      remember(this.#vouched, person, asked);
    }
    const said = await asked;
    return () => said && !this.#wasReplaced;
  }
}

/** Put a value into a map, and the earliest one out where there are too many. */
function remember<V>(map: Map<string, V>, name: string, value: V): void {
  if (map.size >= REMEMBERED) map.delete(map.keys().next().value!);
  map.set(name, value);
}

function random(): string {
  return hex(crypto.getRandomValues(new Uint8Array(16)));
}

/** Return the person's own caps for a survey. */
function own(row: PersonRow, survey: string): Limits[] {
  const caps = { ...row.caps.find(([name]) => name === survey)?.[1], ...row.life };
  return Object.keys(caps).length ? [limitsOf(caps)] : [];
}

/** Return an account and the caps in force; throw `Trouble` where no answer may be taken. */
function accountOf(
  row: PersonRow,
  terms: Terms,
  caps: Limits,
): { account: Account; all: Limits[] } {
  const { survey } = terms.plan;
  if (!row.consents.includes(survey)) throw new Trouble("no_consent");
  const mine = own(row, survey);
  try {
    for (const each of mine) checkLimits(terms, each); // the person may have set them elsewhere since
  } catch (error) {
    if (error instanceof InvalidInput) throw new Trouble("plan_refused", error.message);
    throw error;
  }
  return { account: new Account(row.accounts, survey), all: [caps, ...mine] };
}

/** Throw `Trouble` where an earlier, lost ledger may have spent in this period already. */
function checkVouched(
  { created, confirmed }: LedgerRow,
  vouched: boolean,
  terms: Terms,
  now: number,
  limits: readonly Limits[],
): void {
  if (created === null || vouched) return;
  const why = `the ledger was made at ${new Date(created).toISOString()}`;
  if (isForLife(terms) || limits.some(countForLife)) {
    throw new Trouble(
      "lost_ledger",
      `${why}; what an earlier one spent for life is not known. An app that knows that this person never ` +
        "answered before says so by vouched",
    );
  }
  if (!confirmed)
    throw new Trouble("new_ledger", `${why}, by a clock that the server has not confirmed yet`);
  const { name, begin } = terms.periodAt(now);
  // By a clock that was ahead, the earlier ledger may have entered this period, too.
  if (begin <= created + AHEAD) {
    throw new Trouble("new_ledger", `${why}: an earlier one may have spent in ${name} already`);
  }
}
