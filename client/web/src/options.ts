/** What a client is made of, and the checks of it. */

import type { Agreement } from "./agreement.js";
import { type Agreed, type Caps, checked, entries, shown } from "./choices.js";
import type { Coins } from "./coins.js";
import { InvalidInput } from "./errors.js";
import type { OnDrop } from "./recording/counters.js";
import type { Token } from "./sending/connect.js";
import { type Delivery, USUAL } from "./sending/sender.js";
import { IndexedDbStore } from "./storage/indexeddb.js";
import { nameOf, type Store } from "./storage/store.js";
import { Trouble } from "./trouble.js";

/** Values by attribute, or by attribute and map. */
export type MayReveal = Readonly<
  Record<string, readonly string[] | Readonly<Record<string, readonly string[]>>>
>;

/** What a client is made of. */
export interface ClientOptions {
  /** The server: "https://HOST", or "http://" on loopback; with a path where a proxy has it under one. */
  readonly url: string;
  /** The survey's name, with `epsilon`; or else give `agreement`. */
  readonly survey?: string;
  /** What `hearsay codegen --typescript` wrote: the app accepts exactly this plan. */
  readonly agreement?: Agreement;
  /** The person's level; without it the survey's default. Decide it before any answer is known. */
  readonly level?: string | undefined;
  /** The levels of some attributes, by name. */
  readonly levels?: Readonly<Record<string, string>>;
  /**
   * The values that the person minds, as the name of a map of an attribute, by attribute: its other values may
   * be revealed, and without one all are protected alike. Decide it before any answer is known: the server sees
   * which map was chosen.
   */
  readonly maps?: Readonly<Record<string, string>>;
  /**
   * The values of public properties that the survey declares, by name, such as `{ platform: "ios" }`: everybody
   * reads them on each batch. Give what is so whatever the person answers, and never compute a value from an
   * answer: no mechanism protects it. One that is not given is sent empty, and so is a value that the survey does
   * not declare, which `status` tells. Where the survey declares no such property, nothing is sent.
   */
  readonly properties?: Readonly<Record<string, string>>;
  /**
   * The most that one record may spend; required without an `agreement`. By it alone a server can give each device a
   * plan of its own at first contact, as by the last bits of a probability, and know its reports by it: only an
   * `agreement` or a `revision` excludes that.
   */
  readonly epsilon?: number;
  /** The most delta of a record that is split between two servers; 1e-6 without one, an `agreement` or a `revision`. */
  readonly delta?: number;
  /** Grant consent, as `grant` does; without it the consent noted in the ledger holds. */
  readonly consent?: boolean;
  /** The app's caps, which hold for everybody. */
  readonly caps?: Caps;
  /** The attributes that are never answered, whatever `record` is given. */
  readonly withhold?: readonly string[];
  /** The ordinary values that a report may reveal, by attribute; or, of an attribute with maps, by map. */
  readonly mayReveal?: MayReveal;
  /** The memoised attributes, whose reports tell when an answer changes or comes back. */
  readonly mayTellChanges?: readonly string[];
  /** The most panels that people may be divided into: with 16 every report of a person has the same 4 bits in
   * the clear, for the life of the survey. */
  readonly panels?: number;
  /** The SHA-256 of the only plan that is accepted, in hexadecimal. */
  readonly revision?: string;
  /** What proves to the server who calls. In a page it is no secret: everybody can read it. */
  readonly token?: Token;
  /** The address of the shuffler that takes this survey's sealed records, written as `url`: for a survey that declares
   * `sealing`, and for no other. The plan comes from `url`, which gets no record from this device. Choose a shuffler whose
   * operator does not collude with the collector's: together they know what a collector without a shuffler knows. */
  readonly shuffler?: string;
  /** What proves to the shuffler who calls. */
  readonly shufflerToken?: Token;
  /** The key of the helper of a survey that declares `two_servers`, in hexadecimal, as its operator tells it: records are
   * split between the server and this helper, and a plan that names another one, or none, is refused. A record is then all
   * answers of one call of `record`. Choose a helper whose operator does not collude with the server's: together they see
   * single records. */
  readonly helperKey?: string;
  /** Forgo TLS off loopback: everybody on the way can then read and forge batches. */
  readonly insecure?: boolean;
  readonly delivery?: Partial<Delivery>;
  /** Called with the reason and number of answers, reports or batches dropped, except for "idle". */
  readonly onDrop?: OnDrop;
  /** For development: errors that the programmer can mend are thrown. */
  readonly strict?: boolean;
  /** Log events, but no answer and no code, by `console.debug`. */
  readonly debug?: boolean;
  /** Take and send nothing. */
  readonly disabled?: boolean;
  /** Where the ledger is kept: in browsers, if left out, in IndexedDB. */
  readonly store?: Store;
  /**
   * Tell whether it is certain that a person ("" is the device's own user) has never answered before, on
   * any device and in any ledger of this app that was lost since. Asked once, where the ledger was made by
   * itself. Without it a new ledger takes nothing before a period that begins more than a day after it was
   * made, and nothing at all where something counts for life.
   */
  readonly vouched?: (person: string) => boolean | Promise<boolean>;
  /** The time in milliseconds since 1970, for tests and simulations. */
  readonly clock?: () => number;
  /** Random coins, for tests and simulations. */
  readonly coins?: Coins;
}

/** The names of all options. */
export const OPTIONS = [
  "url survey agreement level levels maps properties epsilon delta consent caps withhold mayReveal mayTellChanges panels",
  "revision token shuffler shufflerToken helperKey insecure delivery onDrop strict debug disabled store vouched clock coins",
]
  .join(" ")
  .split(" ");

/** Return the store of a client that was given none; throw `InvalidInput` where there is no IndexedDB. */
export function usualStore(): Store {
  if (typeof indexedDB !== "undefined") return new IndexedDbStore();
  throw new InvalidInput(
    "there is no IndexedDB here: give store, such as new MemoryStore(), which is lost with the process",
  );
}

/** Return the agreement that the options give; throw `InvalidInput` without one. */
export function agreedOf(options: ClientOptions): Agreed {
  const { survey, agreement, epsilon, delta, revision, panels = 0 } = options;
  if (!Number.isInteger(panels) || panels < 0) {
    throw new InvalidInput(
      `panels must be a whole number, the most there may be, got ${shown(panels)}`,
    );
  }
  if (agreement !== undefined) {
    if (
      survey !== undefined ||
      epsilon !== undefined ||
      delta !== undefined ||
      revision !== undefined ||
      options.mayReveal ||
      options.mayTellChanges ||
      panels
    ) {
      throw new InvalidInput(
        "the agreement contains survey, epsilons, delta, revision, mayReveal, mayTellChanges and panels: leave them out",
      );
    }
    const { survey: name, revision: only } = checked(agreement, AGREEMENT, "an agreement");
    checkName(name);
    checkRevision(only);
    return {
      survey: name,
      epsilon: undefined,
      revision: only,
      mayReveal: lists(agreement.mayReveal, "mayReveal"),
      // `checkAgreement` compares the maps, so each reveals what the app was built with.
      mayRevealByMap: new Map(
        entries(agreement.maps).map(([each, maps]) => [
          each,
          ordinaryOf(agreement.domains[each], lists(maps, "maps")),
        ]),
      ),
      mayTellChanges: names(agreement.mayTellChanges, "mayTellChanges"),
      agreement,
      panels: agreement.panels ?? 0,
      delta: undefined,
    };
  }
  checkName(survey);
  if (epsilon === undefined) {
    throw new InvalidInput(
      "without the module that `hearsay codegen --typescript` writes, give epsilon: the most that one record may spend",
    );
  }
  if (!(typeof epsilon === "number" && epsilon > 0 && epsilon < Infinity)) {
    throw new InvalidInput(`epsilon must be finite and > 0, got ${shown(epsilon)}`);
  }
  if (delta !== undefined && !(typeof delta === "number" && delta > 0 && delta < 1)) {
    throw new InvalidInput(`delta must lie in (0, 1), got ${shown(delta)}`);
  }
  if (revision !== undefined) checkRevision(revision);
  return {
    survey,
    epsilon,
    revision,
    ...revealed(options.mayReveal),
    mayTellChanges: names(options.mayTellChanges, "mayTellChanges"),
    agreement: undefined,
    panels,
    delta: delta ?? (revision === undefined ? USUAL_DELTA : undefined),
  };
}

/** The most delta of a record that an app accepts which names neither a delta nor the exact plan. */
const USUAL_DELTA = 1e-6;

const AGREEMENT =
  "survey revision period domains levels defaultLevel mayReveal maps mayTellChanges views panels properties plan".split(
    " ",
  );

function checkName(survey: unknown): asserts survey is string {
  if (typeof survey !== "string" || !survey) {
    throw new InvalidInput(
      "give agreement, which `hearsay codegen --typescript` wrote, or survey, a name",
    );
  }
}

function checkRevision(revision: unknown): void {
  if (typeof revision !== "string" || !/^[0-9a-f]{64}$/.test(revision)) {
    throw new InvalidInput(
      `revision must be 64 lower-case hexadecimal digits, got ${shown(revision)}`,
    );
  }
}

/** Return a list of names; throw `InvalidInput` for anything else, such as one name. */
export function names(given: unknown, what: string): readonly string[] {
  if (given === undefined) return [];
  if (Array.isArray(given) && given.every((each) => typeof each === "string")) return given;
  throw new InvalidInput(`${what} must be a list of names, got ${shown(given)}`);
}

/** Return the values that each map of an attribute leaves ordinary. */
function ordinaryOf(
  values: unknown,
  maps: ReadonlyMap<string, readonly string[]>,
): Map<string, readonly string[]> {
  const all = Array.isArray(values) ? (values as string[]) : [];
  return new Map(
    [...maps].map(([map, sensitive]) => [map, all.filter((value) => !sensitive.includes(value))]),
  );
}

/** Return the values that may be revealed always, and by map. */
function revealed(given: unknown): Pick<Agreed, "mayReveal" | "mayRevealByMap"> {
  const [always, byMap] = [new Map<string, readonly string[]>(), new Map()];
  for (const [name, values] of entries(given)) {
    const place = `mayReveal[${shown(name)}]`;
    const isByMap = typeof values === "object" && values !== null && !Array.isArray(values);
    if (isByMap) byMap.set(name, lists(values, place));
    else always.set(name, names(values, place));
  }
  return { mayReveal: always, mayRevealByMap: byMap };
}

function lists(given: unknown, what: string): Map<string, readonly string[]> {
  return new Map(
    entries(given).map(([name, values]) => [name, names(values, `${what}[${shown(name)}]`)]),
  );
}

/** Return a helper's key as lower-case hexadecimal digits, "" for none; throw `InvalidInput` for one that is none. */
export function helperKeyOf(key: unknown): string {
  if (key === undefined) return "";
  if (typeof key === "string" && /^[0-9a-fA-F]{64}$/.test(key)) return key.toLowerCase();
  throw new InvalidInput(
    `helperKey must be the 64 hexadecimal digits that \`hearsay helper key\` prints, got ${shown(key)}`,
  );
}

/** Throw `InvalidInput` unless an option that is given is of a kind. */
export function expect(options: ClientOptions, name: keyof ClientOptions, kind: string): void {
  const value = options[name];
  if (value !== undefined && typeof value !== kind) {
    throw new InvalidInput(`${name} must be a ${kind}, got a ${typeof value}`);
  }
}

/** Return a delivery with the usual values where none are given; throw `InvalidInput` unless all are positive. */
export function deliveryOf(given: Partial<Delivery>): Delivery {
  const delivery = { ...USUAL, ...checked(given, Object.keys(USUAL), "delivery") };
  for (const [name, value] of entries(delivery)) {
    if (!(typeof value === "number" && value > 0))
      throw new InvalidInput(`${name} must be > 0, got ${shown(value)}`);
  }
  return delivery;
}

/** The years 1001 to 9998, for which all periods have names of four digits, a beginning and an end. */
const FIRST = Date.parse("1001-01-01T00:00:00Z");
const LAST = Date.parse("9999-01-01T00:00:00Z");

/** Return a clock that throws `Trouble` where the app's throws, or returns no time. */
export function checkedClock(clock: () => number): () => number {
  return () => {
    let now: unknown;
    try {
      now = clock();
    } catch (error) {
      throw new Trouble("clock", `the clock threw ${nameOf(error)}`);
    }
    if (typeof now === "number" && now >= FIRST && now < LAST) return now;
    throw new Trouble(
      "clock",
      `the clock must return milliseconds since 1970, of the years 1001 to 9998, got ${shown(now)}`,
    );
  };
}
