/** The device's client: randomise answers on the device, and send only randomised reports. */

import type { Agreement } from "./agreement.js";
import { type Agreed, type Caps, checked, choicesOf, entries, limitsOf, shown } from "./choices.js";
import { type Coins, SystemCoins } from "./coins.js";
import { InvalidInput } from "./errors.js";
import { type Device, Person } from "./person.js";
import type { Plan } from "./plans/plan.js";
import { Consent } from "./recording/consent.js";
import { Counters, type OnDrop } from "./recording/counters.js";
import { Ledger } from "./recording/ledger.js";
import * as outbox from "./recording/outbox.js";
import { EMPTY, Places } from "./recording/places.js";
import { serverUrl, type Token, Transport } from "./sending/connect.js";
import { isPage, listen } from "./sending/leaving.js";
import { PlanKeeper } from "./sending/planKeeper.js";
import { type Delivery, type DeliveryState, Sender, USUAL } from "./sending/sender.js";
import { IndexedDbStore } from "./storage/indexeddb.js";
import { get, nameOf, type Store, transact } from "./storage/store.js";
import { toThrow, Trouble } from "./trouble.js";

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
  /** The most that one record may spend; required without an `agreement`. */
  readonly epsilon?: number;
  /** Grant consent, as `grant` does; without it the consent noted in the ledger holds. */
  readonly consent?: boolean;
  /** The app's caps, which hold for everybody. */
  readonly caps?: Caps;
  /** The attributes that are never answered, whatever `record` is given. */
  readonly withhold?: readonly string[];
  /** The ordinary values that a report may reveal, by attribute. */
  readonly mayReveal?: Readonly<Record<string, readonly string[]>>;
  /** The memoised attributes, whose reports tell when an answer changes. */
  readonly mayTellChanges?: readonly string[];
  /** The SHA-256 of the only plan that is accepted, in hexadecimal. */
  readonly revision?: string;
  /** What proves to the server who calls. In a page it is no secret: everybody can read it. */
  readonly token?: Token;
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
   * itself. Without it a new ledger takes nothing before its second period, and nothing at all where
   * something counts for life.
   */
  readonly vouched?: (person: string) => boolean | Promise<boolean>;
  /** The time in milliseconds since 1970, for tests and simulations. */
  readonly clock?: () => number;
  /** Random coins, for tests and simulations. */
  readonly coins?: Coins;
}

const OPTIONS = [
  "url survey agreement level levels epsilon consent caps withhold mayReveal mayTellChanges revision token",
  "insecure delivery onDrop strict debug disabled store vouched clock coins",
]
  .join(" ")
  .split(" ");

/**
 * Record answers: randomise each on this device, queue it, send the codes.
 *
 * Guarantee: all that leaves the device for one person and period is epsilon-LDP for the whole record,
 * epsilon being `recordEpsilon`, at most the chosen level's where no attribute has another, and at most
 * what the app agreed to; over periods epsilons add up, and the caps for life bound the sum. A memoised
 * attribute costs its memo's epsilon once per distinct value. Each attribute is randomised at most once
 * per person and period; a repeated answer is dropped and counted. Whether, when and in which form
 * something leaves depends on the plan and on the calls, never on the answers. It holds against
 * everybody, whatever the server sends, and across tabs, reloads and crashes that share the ledger. Where
 * the survey declares sensitive values or classes of an attribute, its policy takes the place of its
 * epsilon, and the ordinary values that `mayReveal` names may be revealed. In the clear are: the survey,
 * the levels, which attributes were answered, the period, and the time and address of contact.
 *
 * The ledger is one of a browser profile: a person with three profiles or devices spends three times.
 *
 * No answer is taken before `grant` (or `consent: true`). No fault of the network, the storage or the
 * server rejects; dropped answers are counted in `counters` by their reason, and `status` says why.
 *
 * Making a client reads and writes nothing. Throws `InvalidInput` where an option is missing, contradicts
 * another or is malformed, and where the page is no secure context.
 */
export class Client extends Person {
  readonly #transport: Transport;
  readonly #store: Store;
  readonly #stop: () => void;
  #emptied = false;

  constructor(options: ClientOptions) {
    checked(options, OPTIONS, "a client");
    const agreed = agreedOf(options);
    const choices = choicesOf(options.level, options.levels);
    const withheld = new Set(names(options.withhold, "withhold"));
    const caps = limitsOf(options.caps ?? {});
    const delivery = deliveryOf(options.delivery ?? {});
    for (const name of ["onDrop", "vouched", "clock"] as const) expect(options, name, "function");
    for (const name of ["consent", "insecure", "strict", "debug", "disabled"] as const) {
      expect(options, name, "boolean");
    }
    const { token } = options;
    if (token !== undefined && typeof token !== "string") expect(options, "token", "function");
    const transport = new Transport(serverUrl(options.url, options.insecure ?? false), token);
    const store = options.store ?? usualStore();
    if (typeof store.run !== "function") throw new InvalidInput("store must have the method run");
    if (typeof globalThis.crypto?.subtle === "undefined") {
      throw new InvalidInput(
        "there is no crypto.subtle here: a page needs https, or to be on localhost",
      );
    }
    const log = options.debug ? (words: string) => console.debug(`hearsay: ${words}`) : () => {};
    const clock = checkedClock(options.clock ?? Date.now);
    const coins = options.coins ?? new SystemCoins();
    const places = new Places(agreed.survey);
    const ledger = new Ledger(store, places, clock, options.vouched, () => {
      keeper.reset();
      sender.dropReady();
    });
    const counters = new Counters(store, places, options.onDrop);
    const consent = new Consent(ledger, clock, counters);
    const keeper = new PlanKeeper(ledger, transport, agreed, choices, withheld, caps, clock, log);
    const sender = new Sender(
      store,
      places,
      transport,
      delivery,
      keeper,
      consent,
      counters,
      clock,
      coins,
      isPage(),
      log,
    );
    const state = options.disabled ? "disabled" : "ready";
    const page =
      state === "ready"
        ? listen(`hearsay: ${agreed.survey}`, {
            leave: () => sender.leave(),
            online: () => sender.online(),
            changed: () => sender.dropReady(),
          })
        : { tell() {}, stop() {} };
    const device: Device = {
      agreed,
      withheld,
      caps,
      delivery,
      strict: options.strict ?? false,
      coins,
      clock,
      ledger,
      consent,
      counters,
      keeper,
      sender,
      log,
      tell: page.tell,
      state,
    };
    super(device, "", choices);
    this.#transport = transport;
    this.#store = store;
    this.#stop = page.stop;
    if (state !== "ready") return;
    if (caps.ends !== undefined && caps.ends <= Date.now()) {
      console.warn("hearsay: the cap for life is not paced any more: its until is over");
    }
    if (options.consent) consent.grant("");
    sender.wake();
  }

  /** Return one of several people whose answers this client records, each with a consent, a level, caps
   * and an account of their own: for a web backend, say, which answers for its users. The ledger knows
   * them by a keyed hash of `name`. Without `level` and `levels` the client's hold. */
  person(
    name: string,
    own: {
      readonly level?: string | undefined;
      readonly levels?: Readonly<Record<string, string>>;
    } = {},
  ): Person {
    if (typeof name !== "string" || !name) throw new InvalidInput("a person needs a name");
    checked(own, ["level", "levels"], "a person");
    const choices = choicesOf(own.level, own.levels);
    const has = choices.level !== undefined || choices.levels.length;
    return new Person(this.device, name, has ? choices : this.choices);
  }

  /**
   * Accept this device's clock as right, as if the server had reported the same time.
   *
   * For an app that cannot reach the server and asks its user: it lets periods be answered that the client
   * would refuse as "clock". It never lets a period be answered twice. Rejects with `StorageFailed` where
   * the time cannot be kept, and `InvalidInput` where the `clock` cannot be used.
   */
  async trustClock(): Promise<void> {
    try {
      await this.device.keeper.trustClock();
    } catch (error) {
      if (error instanceof Trouble)
        throw toThrow(error.reason, `the clock's time could not be kept: ${error.message}`);
      throw error;
    }
  }

  /** Return the waiting reports and sent batches, decoded, exactly as the server sees them. */
  async outbox(): Promise<outbox.Outbox> {
    try {
      return await transact(this.#store, "read", () => outbox.view(this.device.ledger.places));
    } catch (error) {
      if (error instanceof Trouble) return { reports: [], batches: [], sent: [] };
      throw error;
    }
  }

  /**
   * Return how often each thing happened, as kept in the ledger: records queued ("recorded"); answers and
   * reports dropped, by reason: "spent", "idle", "withheld", "unknown", "overflow", "revoked", "lost",
   * "failed" and each `Reason`; answers that a random value was reported for ("invalid"); batches by their
   * outcome: "stored", "duplicate", "refused", "period_closed".
   */
  counters(): Promise<Readonly<Record<string, number>>> {
    return this.device.counters.read();
  }

  /** Return when a batch was last answered, the last error, and how long the oldest report waits. */
  async delivery(): Promise<DeliveryState> {
    const { sender, keeper, ledger, clock } = this.device;
    let oldest: number | undefined;
    try {
      const waits = await transact(this.#store, "read", () => outbox.waiting(ledger.places, 1));
      const since = Math.min(waits.oldest, waits.oldestSealed);
      if (since < Infinity) oldest = Math.max(0, clock() - since);
    } catch (error) {
      if (!(error instanceof Trouble)) throw error;
    }
    return {
      lastSuccess: sender.lastSuccess,
      lastError: sender.lastError || keeper.transportError,
      oldest,
    };
  }

  /**
   * Send all waiting reports; return whether all were answered within `timeout` milliseconds.
   *
   * A batch without a final answer stays queued, and goes again with the same id and bytes, so the server
   * counts it once. A batch that the server refuses is dropped and counted. Where the server asked to be
   * left alone for longer than `timeout`, or failed so often that the next try is later, or the device is
   * offline, it is not asked.
   */
  async flush(timeout = 30_000): Promise<boolean> {
    const { state, sender } = this.device;
    if (state === "closed") return this.#emptied;
    return state === "disabled" || sender.flush(timeout);
  }

  /**
   * Flush for at most `timeout` milliseconds, then stop; return whether no report is left.
   *
   * Unsent reports wait in the ledger for its next client; with a ledger in memory they are counted as
   * "lost". Closing again does nothing. A page need not close: it sends what was sealed as it is left.
   */
  async close(timeout = 10_000): Promise<boolean> {
    const { device } = this;
    if (device.state === "disabled") return true;
    if (device.state !== "ready") return this.#emptied;
    this.#emptied = !(await this.#left()) || (await device.sender.flush(timeout));
    device.state = "closed";
    device.sender.stop();
    this.#stop();
    const left = this.#store.inMemory ? await this.#left() : 0;
    if (left)
      device.counters.add(
        "lost",
        left,
        `a client ended, and ${left} reports that it had in memory are lost`,
      );
    try {
      if (await device.ledger.exists()) await device.counters.keep();
    } catch (error) {
      console.warn(`hearsay: the counters could not be kept: ${nameOf(error)}`);
    }
    this.#store.close?.();
    return this.#emptied;
  }

  /** The survey's plan. Throws `NotReady` where there is none, `PlanRefused` where it was refused, and
   * `InvalidInput` where the server refuses the request. */
  get plan(): Plan {
    const { keeper } = this.device;
    if (!keeper.plan) throw keeper.noPlan();
    return keeper.plan;
  }

  /** The level of the device's own user: the chosen one, or else the survey's default. Throws as `plan`. */
  get level(): string {
    return this.terms().level.name;
  }

  /** The most epsilon that one record spends; throws as `plan` where there is no plan. */
  get recordEpsilon(): number {
    return this.terms().recordEpsilon;
  }

  /** The server that is called. */
  get url(): string {
    return this.#transport.url.href;
  }

  async #left(): Promise<number> {
    try {
      const [queue = EMPTY] = await transact(this.#store, "read", () =>
        get(this.device.ledger.places.queue),
      );
      return queue.rows;
    } catch {
      return 1; // it cannot be told, so it is not said to be empty
    }
  }
}

function usualStore(): Store {
  if (typeof indexedDB !== "undefined") return new IndexedDbStore();
  throw new InvalidInput(
    "there is no IndexedDB here: give store, such as new MemoryStore(), which is lost with the process",
  );
}

/** Return the agreement that the options give; throw `InvalidInput` without one. */
function agreedOf(options: ClientOptions): Agreed {
  const { survey, agreement, epsilon, revision } = options;
  if (agreement !== undefined) {
    if (
      survey !== undefined ||
      epsilon !== undefined ||
      revision !== undefined ||
      options.mayReveal ||
      options.mayTellChanges
    ) {
      throw new InvalidInput(
        "the agreement contains survey, epsilons, revision, mayReveal and mayTellChanges: leave them out",
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
      mayTellChanges: names(agreement.mayTellChanges, "mayTellChanges"),
      agreement,
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
  if (revision !== undefined) checkRevision(revision);
  return {
    survey,
    epsilon,
    revision,
    mayReveal: lists(options.mayReveal, "mayReveal"),
    mayTellChanges: names(options.mayTellChanges, "mayTellChanges"),
    agreement: undefined,
  };
}

const AGREEMENT =
  "survey revision period domains levels defaultLevel mayReveal mayTellChanges plan".split(" ");

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
function names(given: unknown, what: string): readonly string[] {
  if (given === undefined) return [];
  if (Array.isArray(given) && given.every((each) => typeof each === "string")) return given;
  throw new InvalidInput(`${what} must be a list of names, got ${shown(given)}`);
}

function lists(given: unknown, what: string): Map<string, readonly string[]> {
  return new Map(
    entries(given).map(([name, values]) => [name, names(values, `${what}[${shown(name)}]`)]),
  );
}

function expect(options: ClientOptions, name: keyof ClientOptions, kind: string): void {
  const value = options[name];
  if (value !== undefined && typeof value !== kind) {
    throw new InvalidInput(`${name} must be a ${kind}, got a ${typeof value}`);
  }
}

function deliveryOf(given: Partial<Delivery>): Delivery {
  const delivery = { ...USUAL, ...checked(given, Object.keys(USUAL), "delivery") };
  for (const [name, value] of entries(delivery)) {
    if (!(typeof value === "number" && value > 0))
      throw new InvalidInput(`${name} must be > 0, got ${shown(value)}`);
  }
  return delivery;
}

/** The years 1 to 9999, which periods have names for. */
const FIRST = Date.parse("0001-01-01T00:00:00Z");
const LAST = Date.parse("9999-12-31T00:00:00Z");

/** Return a clock that throws `Trouble` where the app's throws, or returns no time. */
function checkedClock(clock: () => number): () => number {
  return () => {
    let now: unknown;
    try {
      now = clock();
    } catch (error) {
      throw new Trouble("clock", `the clock threw ${nameOf(error)}`);
    }
    if (typeof now === "number" && now >= FIRST && now < LAST) return now;
    throw new Trouble("clock", `the clock must return milliseconds since 1970, got ${shown(now)}`);
  };
}
