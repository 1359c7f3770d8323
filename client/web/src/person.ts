/** One person whose answers are recorded: a consent, a level, caps and an account of their own. */

import {
  type Agreed,
  type Caps,
  type Choices,
  type Limits,
  limitsOf,
  noAttribute,
} from "./choices.js";
import type { Coins } from "./coins.js";
import { HearsayError, InvalidInput } from "./errors.js";
import type { Encoded } from "./plans/kinds/index.js";
import type { Consent } from "./recording/consent.js";
import type { Counters } from "./recording/counters.js";
import type { Ledger, Moment, Recorded, Spending } from "./recording/ledger.js";
import { encode, type Terms } from "./recording/terms.js";
import type { PlanKeeper } from "./sending/planKeeper.js";
import type { Delivery, Sender } from "./sending/sender.js";
import { nameOf } from "./storage/store.js";
import { type Reason, type Status, statusOf, toThrow, Trouble } from "./trouble.js";

/** Reasons that may pass by themselves while `waitReady` waits for a plan. */
const PASSING: readonly Reason[] = [
  "no_plan",
  "locked",
  "unreachable",
  "name_not_found",
  "tls",
  "clock",
];

/** Reasons that a strict client throws, since the programmer can mend them. */
const MENDABLE: readonly Reason[] = ["plan_refused", "server_refused", "closed"];

/** Milliseconds between two looks of `waitReady` whether there is a plan. */
const LOOK = 20;

/** Milliseconds for which `revoke` tries to note itself in the ledger. */
const REVOKE_WAIT = 1000;

/** The parts and settings of a client that its people share. */
export interface Device {
  readonly agreed: Agreed;
  readonly withheld: ReadonlySet<string>;
  readonly caps: Limits;
  readonly delivery: Delivery;
  readonly strict: boolean;
  readonly coins: Coins;
  readonly clock: () => number;
  readonly ledger: Ledger;
  readonly consent: Consent;
  readonly counters: Counters;
  readonly keeper: PlanKeeper;
  readonly sender: Sender;
  readonly log: (words: string) => void;
  /** "ready" while the client is open, "disabled" or "closed". */
  state: Reason;
  /** Why no server could ever take the token; "" if one could. */
  readonly barred: string;
}

/**
 * One person whose answers a client records, with a consent, a level, caps and an account of their own.
 * `Client.person` makes one; a client is itself the person whose device it is.
 */
export class Person {
  /** @internal */
  protected readonly device: Device;
  readonly #name: string; // "" is the device's own user
  /** @internal */
  protected readonly choices: Choices;

  /** @internal */
  constructor(device: Device, name: string, choices: Choices) {
    this.device = device;
    this.#name = name;
    this.choices = choices;
  }

  /**
   * Randomise answers by attribute name and queue them; return each one's outcome.
   *
   * Where the survey samples attributes, the record of a period reports the few that were drawn for it,
   * whatever the answers are; the others are dropped as "idle".
   *
   * A category is given as its value, or as an integer that spells it. For an answer outside the domain
   * (another value or type, NaN) a value drawn uniformly from the domain is randomised in its place and
   * counted as "invalid", so that no report tells. An attribute that is left out, undefined or null is
   * withheld: that it was is visible, its answer is not, so do not withhold because of the answer. An
   * attribute that was answered in this period already, or whose epsilon a cap does not allow, is dropped
   * as "spent".
   *
   * Where records are split between two servers, a record is all answers of one call: whoever answers again in the same
   * period is dropped as "spent", and an answer outside its domain counts as none.
   *
   * Never rejects, unless the client is `strict`: then, before anything is spent, `InvalidInput` for an
   * unknown attribute, for an answer outside its domain (the message does not repeat the answer), where
   * the server refuses the request, and after `close`; and `PlanRefused` where the plan is refused. The
   * answer itself is not kept; of a memoised attribute, which values have a memo is.
   */
  async record(answers: Readonly<Record<string, unknown>>): Promise<Recorded> {
    let given = new Map<string, unknown>();
    try {
      given = read(answers);
      const recorded = await this.#record(given);
      this.device.log(
        `record: took ${recorded.taken.join(", ")}, dropped ${JSON.stringify(recorded.dropped)}`,
      );
      return recorded;
    } catch (error) {
      return this.#notRecorded(given, error);
    }
  }

  /**
   * Wait until there is a plan; return whether answers are taken now.
   *
   * Without this person's consent there is nothing to wait for: unless somebody has consented, the server
   * is not even asked. A strict client rejects with `PlanRefused` where the plan is refused, and with
   * `InvalidInput` where the server refuses the request, as for an unknown survey, and after `close`.
   */
  async waitReady(timeout = 10_000): Promise<boolean> {
    const deadline = performance.now() + timeout;
    let status = await this.status();
    while (PASSING.includes(status.reason) && performance.now() < deadline) {
      await new Promise((resolve) => setTimeout(resolve, LOOK));
      status = await this.status();
    }
    if (this.device.strict && MENDABLE.includes(status.reason))
      throw toThrow(status.reason, status.detail);
    return status.ready;
  }

  /** Return whether answers are taken now, and if not, why; and the transport's last error. Where the pace
   * of a cap for life drops answers as "spent", `detail` says until when. It also says which values of
   * properties are not sent, because the survey does not declare them. */
  async status(): Promise<Status> {
    const { keeper, sender } = this.device;
    const transport = (): string => keeper.transportError || sender.lastError;
    let resumes: number | undefined;
    let terms: Terms;
    try {
      terms = await this.#answering();
      const { ledger, caps } = this.device;
      resumes = await ledger.check(this.#name, terms, this.#moment(), caps);
    } catch (error) {
      if (error instanceof Trouble) {
        if (error.reason === "no_consent") sender.dropReady(); // revoked elsewhere, it may be
        return statusOf(error.reason, error.detail, transport());
      }
      throw error;
    }
    const details = [keeper.refusedOther, terms.undeclared].filter(Boolean);
    if (resumes !== undefined) {
      details.push(
        "the cap for life is paced: answers are taken again in a period that is first answered at " +
          `${new Date(resumes).toISOString()} or later`,
      );
    }
    return statusOf("ready", details.join("; "), transport());
  }

  /** Note the user's consent to this survey in the ledger; reject nothing. Where that is not possible now,
   * it is tried again, and `status` says why. */
  async grant(): Promise<void> {
    const { device } = this;
    if (device.state !== "ready") return;
    device.consent.grant(this.#name);
    await noted(device.keeper.look());
    await noted(device.consent.catchUp());
    device.sender.wake();
  }

  /**
   * Revoke consent: stop taking and sending answers at once, note it in the ledger, and drop waiting
   * reports; reject nothing. Where noting is not possible now, it is tried again.
   *
   * With `forget`, the server is asked to delete the batches that were under way and may have reached it,
   * also those of the survey that were dropped before.
   * Acknowledged batches stay counted, and spent epsilon stays spent.
   */
  async revoke({ forget = false }: { readonly forget?: boolean } = {}): Promise<void> {
    const { device } = this;
    if (device.state !== "ready") return;
    device.consent.revoke(this.#name, forget);
    device.sender.pause();
    try {
      const deadline = performance.now() + REVOKE_WAIT;
      while (!(await noted(device.consent.catchUp())) && performance.now() < deadline) {
        await new Promise((resolve) => setTimeout(resolve, LOOK));
      }
    } finally {
      device.sender.resume();
    }
  }

  /**
   * Set the user's own caps, kept in the ledger; the lower of these and the app's hold.
   *
   * The cap for life is for all surveys of the ledger, the others for this survey. Rejects with
   * `InvalidInput` for caps that are none, `StorageFailed` where they cannot be kept, `NotReady` where
   * others hold the ledger for long.
   */
  async setCaps(caps: Caps): Promise<void> {
    limitsOf(caps);
    try {
      await this.device.ledger.setOwnCaps(this.#name, caps);
    } catch (error) {
      if (error instanceof Trouble)
        throw toThrow(error.reason, `the caps could not be kept: ${error.message}`);
      throw error;
    }
  }

  /** Return the epsilon spent and left of each attribute; nothing without a plan. */
  async spendings(): Promise<readonly Spending[]> {
    const { ledger, caps, clock, keeper } = this.device;
    try {
      await keeper.look();
      return await ledger.spendings(this.#name, this.terms(), caps, clock());
    } catch (error) {
      if (error instanceof HearsayError) return [];
      throw error;
    }
  }

  /** Return the terms of this person; throw as `PlanKeeper.terms` where there are none. @internal */
  protected terms(): Terms {
    return this.device.keeper.terms(this.choices);
  }

  #moment(): Moment {
    return { now: this.device.clock(), serverTime: this.device.keeper.serverTime };
  }

  #checkOpen(): void {
    const { state, consent } = this.device;
    if (state === "closed")
      throw new Trouble("closed", "this client is closed; make a new one to record");
    if (state !== "ready") throw new Trouble(state);
    if (this.device.barred) throw new Trouble("bad_token", this.device.barred);
    if (consent.isRevoked(this.#name)) throw new Trouble("no_consent");
  }

  /** Return the terms on which answers are taken; throw `Trouble` where none are. */
  async #answering(): Promise<Terms> {
    const { keeper, consent, sender } = this.device;
    this.#checkOpen();
    this.device.clock(); // which throws where it cannot be used
    await keeper.look();
    try {
      await consent.catchUp();
    } catch (error) {
      if (consent.isPending(this.#name)) throw error; // another person's holds up nobody
    }
    if (!keeper.plan || !(await this.device.ledger.exists())) {
      if (!(await consent.has(this.#name))) throw new Trouble("no_consent");
    }
    await keeper.confirmCreated();
    if (!keeper.plan) {
      sender.wake();
      throw new Trouble(keeper.refused.reason, keeper.refused.detail);
    }
    this.#checkOpen(); // it may have been closed, or revoked, meanwhile
    try {
      return this.terms();
    } catch (error) {
      if (error instanceof InvalidInput) throw new Trouble("plan_refused", error.message);
      throw error;
    }
  }

  async #record(given: ReadonlyMap<string, unknown>): Promise<Recorded> {
    const { device } = this;
    const revoked = device.consent.revocations(this.#name);
    const terms = await this.#answering();
    const values = new Map<string, Encoded | undefined>();
    const dropped = new Map<string, string>();
    const invalid: string[] = [];
    for (const [name, answer] of given) {
      if (!terms.plan.attributes.has(name)) {
        if (device.strict) throw new InvalidInput(noAttribute(terms.plan, name));
        dropped.set(name, "unknown");
      } else if (terms.withheld.has(name)) {
        dropped.set(name, "withheld");
      } else {
        try {
          values.set(name, encode(terms.plan, name, answer));
        } catch (error) {
          if (device.strict) throw error;
          device.log(`an answer was replaced: ${(error as Error).message}`);
          values.set(name, undefined);
          invalid.push(name);
        }
      }
    }
    if (!values.size) return this.#outcome([], dropped, []);
    const { maxReports, maxBytes, batchRows, batchBytes, batchAge } = device.delivery;
    const done = await device.ledger.record(
      this.#name,
      terms,
      values,
      this.#moment(),
      device.caps,
      [maxReports, maxBytes],
      device.coins,
      () => {
        this.#checkOpen();
        if (device.consent.revocations(this.#name) !== revoked) throw new Trouble("no_consent");
      },
    );
    for (const [name, reason] of done.dropped) dropped.set(name, reason);
    if (done.overflow) device.counters.add("overflow", done.overflow);
    if (done.taken.length)
      device.sender.wake(done.rows >= batchRows || done.size >= batchBytes ? 0 : batchAge);
    return this.#outcome(done.taken, dropped, invalid);
  }

  #outcome(
    taken: readonly string[],
    dropped: ReadonlyMap<string, string>,
    replaced: readonly string[],
  ): Recorded {
    const { counters } = this.device;
    const invalid = replaced.filter((name) => taken.includes(name));
    if (taken.length) counters.add("recorded");
    for (const reason of dropped.values()) counters.add(reason);
    if (invalid.length) counters.add("invalid", invalid.length);
    return { taken, dropped: Object.fromEntries(dropped), invalid };
  }

  /** Return that nothing was taken, and count it; or throw, where the client is strict. */
  #notRecorded(given: ReadonlyMap<string, unknown>, error: unknown): Recorded {
    const { strict, counters, sender } = this.device;
    let reason = "failed";
    if (error instanceof Trouble) {
      if (strict && MENDABLE.includes(error.reason)) throw toThrow(error.reason, error.message);
      ({ reason } = error);
      if (reason === "no_consent") sender.dropReady();
      if (reason === "clock" || reason === "disk") sender.wake(); // the server's time may be had
      if (reason !== "disabled" && given.size) counters.add(reason, given.size, error.detail);
    } else {
      if (strict) throw error;
      // Without its message, which may have the answer in it.
      console.error(`hearsay: an answer could not be recorded: ${nameOf(error)}`);
      counters.add(reason, Math.max(1, given.size));
    }
    return {
      taken: [],
      dropped: Object.fromEntries([...given.keys()].map((name) => [name, reason])),
      invalid: [],
    };
  }
}

/** Stands for an answer whose getter threw: it is as good as one outside the domain. */
const UNREADABLE = Symbol("unreadable");

/** Read the answers now: the app may change the object while `record` waits. */
function read(answers: Readonly<Record<string, unknown>>): Map<string, unknown> {
  if (typeof answers !== "object" || answers === null)
    throw new InvalidInput("answers must be an object");
  const given = new Map<string, unknown>();
  for (const name of Object.keys(answers)) {
    let answer: unknown;
    try {
      answer = copied(answers[name]);
    } catch {
      answer = UNREADABLE;
    }
    if (answer !== undefined && answer !== null) given.set(name, answer);
  }
  return given;
}

/** Return a copy of a list, a set or a map of answers, which the app may change; other answers as they are. */
function copied(answer: unknown): unknown {
  if (Array.isArray(answer)) return [...(answer as unknown[])];
  if (answer instanceof Set) return new Set(answer);
  if (answer instanceof Map) return new Map(answer);
  const isPlain = typeof answer === "object" && answer !== null;
  return isPlain && Object.getPrototypeOf(answer) === Object.prototype ? { ...answer } : answer;
}

/** Wait for something to be noted in the ledger; return whether it was. `status` says why not. */
async function noted(write: Promise<void>): Promise<boolean> {
  try {
    await write;
    return true;
  } catch (error) {
    if (!(error instanceof Trouble))
      console.error(`hearsay: the ledger could not note a change: ${nameOf(error)}`);
    return false;
  }
}
