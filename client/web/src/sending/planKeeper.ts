/** The one plan of a survey: the first that was accepted, kept in the ledger for ever. */

import {
  type Agreed,
  type Choices,
  checkAgreed,
  checkRevision,
  type Limits,
  shown,
} from "../choices.js";
import { HearsayError, InvalidInput } from "../errors.js";
import { sha256 } from "../plans/digest.js";
import type { Plan } from "../plans/plan.js";
import { decodePlan, type PlanResponse } from "../plans/protobuf.js";
import { AHEAD } from "../recording/account.js";
import type { Ledger } from "../recording/ledger.js";
import * as outbox from "../recording/outbox.js";
import { areSame, hex, type TimeRow } from "../recording/places.js";
import { checkLimits, type Terms, termsOf } from "../recording/terms.js";
import { get, nameOf, put, transact } from "../storage/store.js";
import { type Status, statusOf, toThrow, Trouble, Unreachable } from "../trouble.js";
import { onOneLine, type Transport } from "./connect.js";

/** How far the server's time may be behind the clock before the server is asked for it: a page that is
 * loaded after a while knows only the time that the last one heard. */
const BEHIND = 12 * 3600e3;

/** Characters of the reason why a plan is refused that are passed on. */
const REFUSED = 1000;

const NEVER: TimeRow = { fetched: -Infinity, serverTime: 0 };

/**
 * What of a survey's waiting reports a client must leave where it is.
 *
 * - "unpacked": reports that are in no batch yet. They were split between two servers, and only their plan, which this
 *   client does not have, says how they are packed.
 * - "all": they wait for a shuffler and the plan's keys, or for a helper, that this client does not have. Or a tab of a later
 *   release of the app has put its plan into the ledger: what waits is of that plan, or for that release to drop.
 */
export type Held = "nothing" | "unpacked" | "all";

/** What must stay, and the plan that the ledger has, with its revision: nothing of another revision leaves. */
export interface Look {
  readonly held: Held;
  readonly kept: Uint8Array | undefined;
  readonly revision: string;
}

/**
 * The plan by which a client randomises, and the server's time. Times in milliseconds since 1970.
 *
 * The plan of a survey never changes, so the first one that was accepted is kept and every other one is
 * refused. Only an app that ships a revision accepts exactly that plan, also where another one was kept
 * before. Spent epsilon stays spent in either case.
 */
export class PlanKeeper {
  /** The plan, once there is one. */
  plan: Plan | undefined;
  /** Why there is no plan. */
  refused: Status = statusOf("no_plan", "no plan has come yet");
  /** Why a plan other than the kept plan was refused; "" where none came. */
  refusedOther = "";
  /** How the last call to the server failed, in words; "" where it succeeded. */
  transportError = "";
  #kept = "";
  #asked = -Infinity;
  #heard: { said: number; at: number } | undefined;
  #isTold = false; // whether the server itself said it, on this page
  #looking: Promise<void> | undefined;
  readonly #terms = new WeakMap<Choices, Terms>();

  /** `choices` and `caps` are the device's own user's, whose record the plan must allow. `shuffled` says that the client
   * has a shuffler to send to: then records are to be sealed, and without they must not be. `helperKey` is the key of the
   * second of two servers, in hexadecimal: then records are to be split with it, and where it is "" they must not be. */
  constructor(
    private readonly ledger: Ledger,
    private readonly transport: Transport,
    private readonly agreed: Agreed,
    private readonly choices: Choices,
    private readonly withheld: ReadonlySet<string>,
    private readonly caps: Limits,
    private readonly clock: () => number,
    private readonly shuffled: boolean,
    private readonly helperKey: string,
    private readonly log: (words: string) => void,
  ) {}

  /** End the calls under way, as if no answer had come. */
  interrupt(): void {
    this.transport.interrupt();
  }

  /** Forget what the ledger said, since another one took its place. */
  reset(): void {
    this.plan = undefined;
    this.#looking = undefined;
    this.#kept = "";
    this.#asked = -Infinity;
    this.refused = statusOf("no_plan", "no plan has come yet");
  }

  /** The server's time now: its last reported time, plus the time passed since on this page; undefined
   * where it never reported any. */
  get serverTime(): number | undefined {
    return this.#heard && this.#heard.said + performance.now() - this.#heard.at;
  }

  /** Note the server's time, in seconds; 0 where an answer did not report it. */
  hear(seconds: number): void {
    if (!(seconds > 0)) return;
    this.#heard = { said: seconds * 1000, at: performance.now() };
    this.#isTold = true;
  }

  /** Keep the server's time in the ledger, for the next page; throw `Trouble` where that cannot be. */
  async keepServerTime(): Promise<void> {
    const { time } = this.ledger.places;
    const row: TimeRow = { fetched: this.#asked, serverTime: this.#heard?.said ?? 0 };
    await transact(this.ledger.store, "relaxed", () => put(time, row));
  }

  /**
   * Take the device's clock for the server's time; throw `Trouble` where that cannot be kept.
   *
   * It does not confirm when a new ledger was made: a clock that is put back would let the new ledger
   * answer what a lost one answered.
   */
  async trustClock(): Promise<void> {
    this.#heard = { said: this.clock(), at: performance.now() };
    this.#isTold = false;
    await this.keepServerTime();
  }

  /**
   * Correct the time at which the ledger was made, once the server confirms the clock.
   *
   * It was made by a clock that may have been wrong. Where the server has said its time on this page, and
   * the clock agrees with it to a day, an earlier ledger can have entered periods that begin within a day
   * from now, and no later ones. A time that the ledger kept does not count: the app may have trusted it.
   */
  async confirmCreated(): Promise<void> {
    const { serverTime } = this;
    if (serverTime === undefined || !this.#isTold || (await this.ledger.isConfirmed())) return;
    const now = this.clock();
    if (Math.abs(now - serverTime) <= AHEAD)
      await this.ledger.confirmCreated(Math.max(now, serverTime));
  }

  /** Load the plan from the ledger, or from the app's agreement; throw `Trouble` where the ledger cannot
   * be read or written. */
  async look(): Promise<void> {
    if (this.plan) return;
    this.#looking ??= this.#look().finally(() => {
      this.#looking = undefined;
    });
    await this.#looking;
  }

  async #look(): Promise<void> {
    const { agreed } = this;
    const { plan: place, time } = this.ledger.places;
    const [kept, row = NEVER]: [Uint8Array?, TimeRow?] = await transact(
      this.ledger.store,
      "read",
      function* () {
        return (yield* get(place, time)) as [Uint8Array?, TimeRow?];
      },
    );
    if (!this.#heard && row.serverTime > 0)
      this.#heard = { said: row.serverTime, at: performance.now() };
    // Where the app asks for another plan than the kept one, its plan is yet to come.
    if (kept && (agreed.revision === undefined || agreed.revision === (await sha256(kept)))) {
      try {
        this.#accept(await this.#accepted(kept));
        this.#asked = Math.max(this.#asked, row.fetched);
        return;
      } catch (error) {
        this.#refuse(error);
      }
    }
    const shipped = agreed.agreement?.plan;
    if (!shipped) return;
    let data: Uint8Array;
    try {
      data = Uint8Array.from(atob(shipped), (character) => character.charCodeAt(0));
    } catch {
      this.#refuse(new InvalidInput("the agreement's plan is no base64"));
      return;
    }
    await this.#take(data);
  }

  /** Whether there is no plan, or the server's time is needed. */
  async lacksSomething(): Promise<boolean> {
    const known = this.serverTime;
    if (!this.plan || (!this.#isTold && !(await this.ledger.isConfirmed()))) return true;
    return known !== undefined && this.clock() - known > BEHIND;
  }

  /**
   * Tell whether the server has to be asked for its plan or its time.
   *
   * That is so where something is lacking and it was not asked in `retry` milliseconds; and where it was
   * not asked in `age` milliseconds whether the plan is still the same, unless the app ships that.
   */
  async isDue(age: number, retry: number): Promise<boolean> {
    const since = this.clock() - this.#asked;
    const fresh = (most: number): boolean => since >= 0 && since < most;
    if (await this.lacksSomething()) return !fresh(retry);
    return !this.agreed.agreement?.plan && !fresh(age);
  }

  /** Ask the server for its plan and its time. Throws `Unreachable` where it does not answer, and
   * `Trouble` where the ledger cannot keep its answer. */
  async fetch(timeout: number): Promise<void> {
    let answer: PlanResponse;
    try {
      answer = await this.transport.getPlan(this.agreed.survey, timeout);
    } catch (error) {
      if (!(error instanceof InvalidInput)) throw error; // there is no such survey, say
      this.#asked = this.clock();
      this.failed(new Unreachable(error.message, "server_refused"));
      return;
    }
    this.#asked = this.clock();
    this.succeeded(answer.server_time);
    await this.#take(answer.plan);
    await this.keepServerTime();
  }

  /** Take note of a call that failed. */
  failed(error: Unreachable): void {
    if (this.transportError !== error.message) {
      console.warn(`hearsay: ${shown(this.agreed.survey)}: ${error.message}`);
    }
    this.transportError = error.message;
    if (!this.plan && this.refused.reason !== "plan_refused")
      this.refused = statusOf(error.reason, error.message);
  }

  /** Take note of a call that was answered. */
  succeeded(serverTime: number): void {
    this.transportError = "";
    this.hear(serverTime);
  }

  /** Accept a plan and keep it, unless another one was kept; else keep the reason why not. */
  async #take(data: Uint8Array): Promise<void> {
    if (this.plan) {
      if ((await sha256(data)) !== this.#kept) {
        this.#refuse(
          new InvalidInput(
            `the plan of ${shown(this.agreed.survey)} changed on the server: revision ` +
              `${this.plan.revision.slice(0, 12)} was accepted first and stays`,
          ),
        );
      }
      return;
    }
    try {
      const plan = await this.#accepted(data);
      if (this.plan) return this.#take(data);
      const kept = await this.#keep(data, plan);
      this.#accept(kept === data ? plan : await this.#accepted(kept));
    } catch (error) {
      this.#refuse(error);
    }
  }

  /** Keep a plan that was accepted, unless another tab was first: then return that one. */
  async #keep(data: Uint8Array, { sealing }: Plan): Promise<Uint8Array> {
    const { ledger, agreed } = this;
    const { places } = ledger;
    // A plan that the app ships is kept once there is a ledger: nothing is before somebody consents.
    if (agreed.revision !== undefined && !(await ledger.exists())) return data;
    return transact(ledger.store, "strict", function* () {
      const [kept]: (Uint8Array | undefined)[] = yield* get(places.plan);
      if (kept && agreed.revision === undefined) return kept;
      if (kept && !sealing && isSealed(kept)) {
        // Asked for in the clear, requests to forget would tell whose the mixed records are.
        yield* outbox.dropAll(places, "refused");
      }
      yield* put(places.plan, data);
      return data;
    });
  }

  /** Load the plan as `look` does, and tell what of what waits now must stay. Who queues a report has put its plan into the
   * ledger before, so this must come after the look at the queue. */
  async held(): Promise<Look> {
    await this.look();
    const { store, places } = this.ledger;
    const [kept]: (Uint8Array | undefined)[] = await transact(store, "read", () =>
      get(places.plan),
    );
    const { plan } = this;
    if (plan) {
      const held = !kept || areSame(kept, plan.data) ? "nothing" : "all";
      return { held, kept, revision: plan.revision };
    }
    if (!kept) return { held: "nothing", kept, revision: "" };
    return { held: this.#withoutPlan(kept), kept, revision: await sha256(kept) };
  }

  /** Return the error to throw where there is no plan: it says why. */
  noPlan(): HearsayError {
    return toThrow(this.refused.reason, `${this.refused.detail}: wait for waitReady()`);
  }

  /** Return the terms of a person with these choices. Throws `noPlan()` without a plan, and
   * `InvalidInput` where the plan has no such choice. */
  terms(choices: Choices): Terms {
    if (!this.plan) throw this.noPlan();
    let known = this.#terms.get(choices);
    if (known?.plan !== this.plan)
      this.#terms.set(choices, (known = this.#checked(this.plan, choices)));
    return known;
  }

  #checked(plan: Plan, choices: Choices): Terms {
    const terms = termsOf(plan, choices, this.agreed, this.withheld);
    checkLimits(terms, this.caps);
    if (terms.undeclared) console.warn(`hearsay: ${shown(plan.survey)}: ${terms.undeclared}`);
    return terms;
  }

  /** Parse a plan; throw `InvalidInput` unless it fits the app's agreement and the choices of the
   * device's own user. If the user chose no level and there is no default, there must be levels that
   * somebody else could choose. */
  async #accepted(data: Uint8Array): Promise<Plan> {
    await checkRevision(this.agreed, data);
    const plan = await parsed(data);
    await this.#checkShuffler(plan);
    await this.#checkHelper(plan);
    checkAgreed(this.agreed, plan, this.withheld);
    if (this.choices.level !== undefined || plan.defaultLevel) {
      this.#terms.set(this.choices, this.#checked(plan, this.choices));
      return plan;
    }
    try {
      const { maps, properties } = this.choices;
      this.#checked(plan, { ...least(plan), maps, properties });
    } catch (error) {
      throw new InvalidInput(
        `nobody could answer ${shown(plan.survey)}, whatever level they choose: ${(error as Error).message}`,
      );
    }
    return plan;
  }

  /** Throw `InvalidInput` unless the client has a shuffler exactly where records are sealed, and can seal to every key of
   * the plan. */
  async #checkShuffler(plan: Plan): Promise<void> {
    const records = `the records of ${shown(plan.survey)}`;
    if (!plan.sealing && this.shuffled)
      throw new InvalidInput(
        `${records} are not sealed, so no shuffler takes them: leave shuffler out`,
      );
    if (plan.sealing && !this.shuffled)
      throw new InvalidInput(
        `${records} are sealed and go to a shuffler: give shuffler, the address of one that you trust not to collude ` +
          "with the collector",
      );
    if (plan.sealing) await (await loaded(() => import("../sealed/records.js"))).checkKeys(plan);
  }

  /** Throw `InvalidInput` unless records are split with the helper that the app trusts, and with none where it named none:
   * a server could be both of its two servers. */
  async #checkHelper(plan: Plan): Promise<void> {
    const records = `the records of ${shown(plan.survey)}`;
    const { twoServers } = plan;
    if (!twoServers) {
      if (this.helperKey)
        throw new InvalidInput(`${records} are not split between two servers: leave helperKey out`);
      return;
    }
    const key = hex(twoServers.helperKey);
    if (key !== this.helperKey) {
      throw new InvalidInput(
        `${records} are split between the server and a helper (${twoServers.helper || "without a name"}) with the key ` +
          `${key}, and helperKey is ${this.helperKey || "none"}: give the key as the helper's operator tells it, whom ` +
          "you trust not to collude with the server's",
      );
    }
    await (await loaded(() => import("../recording/splitting.js"))).checkServers(plan);
  }

  /** Tell what of what waits by a plan that was kept must stay with a client that has no plan. */
  #withoutPlan(kept: Uint8Array): Held {
    try {
      const { survey } = decodePlan(kept);
      const helper = hex(survey?.two_servers?.helper_key ?? new Uint8Array());
      if (survey?.sealing || this.shuffled || helper !== this.helperKey) return "all";
      return helper !== "" ? "unpacked" : "nothing";
    } catch {
      return "all"; // nothing leaves by a plan that cannot be read
    }
  }

  #accept(plan: Plan): void {
    this.plan = plan;
    this.#kept = plan.revision;
    this.log(`took revision ${plan.revision.slice(0, 12)} of ${shown(plan.survey)}`);
  }

  #refuse(error: unknown): void {
    if (!(error instanceof InvalidInput)) throw error;
    const why = onOneLine(error.message, REFUSED); // it may repeat the plan's texts
    const before = this.plan ? this.refusedOther : this.refused.detail;
    if (before !== why) {
      console.error(`hearsay: a plan of ${shown(this.agreed.survey)} is refused: ${why}`);
    }
    if (this.plan)
      this.refusedOther = why; // the plan that was kept holds
    else this.refused = statusOf("plan_refused", why);
  }
}

/** Build a plan from its bytes, as `parsePlan`; throw `Trouble` where a part of the SDK is not to be had. */
async function parsed(data: Uint8Array): Promise<Plan> {
  try {
    // With the mechanisms this is as large as the rest, and a page needs it only once somebody answers.
    return await (await import("../plans/plan.js")).parsePlan(data);
  } catch (error) {
    if (error instanceof HearsayError) throw error;
    throw new Trouble("no_plan", `a part of the SDK could not be loaded: ${nameOf(error)}`);
  }
}

/** Tell whether the records of a plan that was kept are sealed. */
function isSealed(kept: Uint8Array): boolean {
  try {
    return decodePlan(kept).survey?.sealing !== undefined;
  } catch {
    return true; // of a plan that cannot be read nothing is asked for
  }
}

/** Load a part of the SDK; throw `Trouble` where that is not to be had. */
async function loaded<T>(load: () => Promise<T>): Promise<T> {
  try {
    return await load();
  } catch (error) {
    throw new Trouble("no_plan", `a part of the SDK could not be loaded: ${nameOf(error)}`);
  }
}

/** Return the choices that spend least: each attribute at the level that spends least on it. */
function least(plan: Plan): Pick<Choices, "level" | "levels"> {
  const levels = [...plan.levels.values()];
  const loosest = levels.reduce((a, b) => (b.epsilon > a.epsilon ? b : a));
  return {
    level: loosest.name,
    levels: [...plan.attributes.keys()].map((name) => {
      const asked = [...plan.questions.values()].filter(({ parts }) => parts.includes(name));
      const epsilon = (level: (typeof levels)[0]): number =>
        Math.max(...asked.map((question) => level.mechanisms.get(question.name)!.epsilon));
      return [name, levels.reduce((a, b) => (epsilon(b) < epsilon(a) ? b : a)).name] as const;
    }),
  };
}
