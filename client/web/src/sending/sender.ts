/** What talks to the server: fetches the plan, seals, sends, and waits. No answer waits for the network. */

import type { Coins } from "../coins.js";
import { HearsayError, InvalidInput } from "../errors.js";
import { label } from "../plans/period.js";
import type { Plan } from "../plans/plan.js";
import type { Consent } from "../recording/consent.js";
import type { Counters } from "../recording/counters.js";
import * as outbox from "../recording/outbox.js";
import { type BatchRow, type Places, unhex } from "../recording/places.js";
import { get, list, nameOf, put, type Store, transact } from "../storage/store.js";
import { after, type Timer } from "../timers.js";
import { Trouble, Unreachable } from "../trouble.js";
import { onOneLine, type Transport } from "./connect.js";
import type { Held, Look, PlanKeeper } from "./planKeeper.js";
import { seal, sealSingly } from "./sealing.js";

/** The statuses of a result that end a batch, and how they are counted. Any other leaves it queued. */
const FINAL: Readonly<Record<number, string>> = { 1: "stored", 2: "duplicate", 3: "refused" };

/** The reason of a refusal that the period is closed. */
const PERIOD_CLOSED = 8;

/** Milliseconds between two looks at an empty queue, which another tab may have left filled. */
const IDLE = 60_000;

/** Milliseconds for which new counts may be in memory only. */
const KEEP = 5000;

/** Milliseconds after which a sender that lost a race with another tab looks again. */
const AGAIN = 100;

/**
 * When batches are sealed and sent, how much may wait, and for how long; times in milliseconds.
 *
 * A batch goes when `batchRows` reports or `batchBytes` wait, or one for `batchAge`: only what was sealed
 * before a page is left can be sent as it is left, so the age is short. At most `maxReports` and
 * `maxBytes` wait; the oldest are dropped beyond that. A try that fails is followed by another after
 * `firstWait`, then twice that, up to `longestWait`, each 50 to 100% of it, never before the server's own
 * retry delay; a flush keeps to that, too. `timeout` is for one call. `planAge` is how old a plan gets
 * before the server is asked again whether it is still the same; where there is none yet, that is
 * `longestWait`.
 */
export interface Delivery {
  readonly batchRows: number;
  readonly batchBytes: number;
  readonly batchAge: number;
  readonly maxReports: number;
  readonly maxBytes: number;
  readonly firstWait: number;
  readonly longestWait: number;
  readonly timeout: number;
  readonly planAge: number;
}

/** The usual delivery. Batches are at most 48 KiB, so that one and its request outlive a page. */
export const USUAL: Delivery = {
  batchRows: 512,
  batchBytes: 48 << 10,
  batchAge: 1000,
  maxReports: 10_000,
  maxBytes: 8 << 20,
  firstWait: 1000,
  longestWait: 300_000,
  timeout: 10_000,
  planAge: 24 * 3600e3,
};

/** How delivery goes. */
export interface DeliveryState {
  /** When a batch was last answered for good, in milliseconds since 1970; undefined: never on this page. */
  readonly lastSuccess: number | undefined;
  /** The last error in words; "" where there was none since. */
  readonly lastError: string;
  /** For how many milliseconds the oldest report has been waiting; undefined where none waits. */
  readonly oldest: number | undefined;
}

interface Flush {
  readonly deadline: number;
  readonly answer: (sent: boolean) => void;
}

/** A sealed batch that waits for an answer, in this page's memory: what it sends as it is left. */
interface Ready {
  readonly id: string;
  /** As they are in the ledger, which may drop rows until the batch leaves. */
  bytes: Uint8Array;
  /** Whether the ledger knows that the server may have it. */
  left: boolean;
  underWay: boolean;
}

/** Deliver one survey's reports from a store. Nothing here throws into the app. */
export class Sender {
  lastSuccess: number | undefined;
  lastError = "";
  #timer: Timer | undefined;
  #due = Infinity;
  #turning = false;
  #again = false;
  #stopped = false;
  #pauses = 0;
  #flushes: Flush[] = [];
  readonly #ready = new Map<string, Ready>();
  #drops = 0;
  readonly #answered = new Map<string, string>(); // but the ledger could not note it
  #leaving: Promise<void> | undefined;
  #failures = 0;
  #notBefore = 0;
  #asked = false; // whether the server itself asked for the delay
  #forgetFailures = 0;
  #forgetAt = 0;
  #held: Held = "nothing"; // when we last looked

  /** `transport` is that of the shuffler where records are sealed. `isPage` tells that a page may be left, and then sends
   * without looking at the ledger. */
  constructor(
    private readonly store: Store,
    private readonly places: Places,
    private readonly transport: Transport,
    private readonly delivery: Delivery,
    private readonly keeper: PlanKeeper,
    private readonly consent: Consent,
    private readonly counters: Counters,
    private readonly clock: () => number,
    private readonly coins: Coins,
    private readonly isPage: boolean,
    private readonly log: (words: string) => void,
  ) {}

  /** Look at the queue, now or within `delay` milliseconds. */
  wake(delay = 0): void {
    if (this.#stopped) return;
    const due = performance.now() + delay;
    if (due >= this.#due) return;
    clearTimeout(this.#timer);
    this.#due = due;
    this.#timer = after(delay, () => {
      this.#due = Infinity;
      void this.#run();
    });
    // In Node a process may end while nothing but the next look is to come.
    (this.#timer as { unref?: () => void }).unref?.();
  }

  /** Send all waiting reports; return whether all were answered within `timeout` milliseconds. Where the
   * next try is later than that, the server is not asked. */
  flush(timeout: number): Promise<boolean> {
    if (this.#stopped) return Promise.resolve(false);
    return new Promise((resolve) => {
      const late = after(timeout, () => flush.answer(false));
      const flush: Flush = {
        deadline: performance.now() + timeout,
        answer: (sent) => {
          clearTimeout(late);
          this.#flushes = this.#flushes.filter((each) => each !== flush);
          resolve(sent);
        },
      };
      this.#flushes.push(flush);
      this.wake();
    });
  }

  /** End the calls under way and keep others from beginning until `resume`. */
  pause(): void {
    this.#pauses++;
    this.#interrupt();
  }

  /** End a pause. */
  resume(): void {
    this.#pauses--;
    this.wake();
  }

  /** Stop for good, and end the calls under way. */
  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
    this.#interrupt();
    this.#ready.clear();
    for (const flush of this.#flushes) flush.answer(false);
  }

  #interrupt(): void {
    this.transport.interrupt();
    this.keeper.interrupt();
  }

  /** The device is online again: try at once, unless the server itself asked for a delay. */
  online(): void {
    if (!this.#asked) [this.#failures, this.#notBefore] = [0, 0];
    this.wake();
  }

  /** Forget the sealed batches in memory: a revocation has dropped some from the ledger. */
  dropReady(): void {
    this.#drops++;
    this.#ready.clear();
  }

  /**
   * Send what was sealed, since the page may be going away. Everything up to the call of fetch happens
   * before this returns: nothing that is awaited here would still happen. If the page stays, the answer
   * is taken as any other. Nothing is sent before the time that the server asked for.
   */
  leave(): void {
    if (this.#stopped || this.#pauses || !this.consent.maySend) return;
    if (this.#mustWait) return;
    const leaving: [string, Ready][] = [];
    let room = this.transport.room;
    for (const [key, ready] of this.#ready) {
      const size = ready.bytes.length + 8; // with its tag and length in the request
      if (ready.underWay || !ready.left || size > room) continue;
      room -= size;
      ready.underWay = true;
      leaving.push([key, ready]);
    }
    if (!leaving.length) return;
    const { timeout } = this.delivery;
    const call = this.transport.submit(
      leaving.map(([, { bytes }]) => bytes),
      timeout,
    );
    this.#leaving = call
      .then(async (answer) => {
        for (const [i, [key, ready]] of leaving.entries())
          await this.#take(key, ready, answer.results[i]!);
        this.keeper.succeeded(answer.server_time);
      })
      .catch((error) => {
        if (this.#pauses || this.#stopped) return; // the call was ended, and did not fail
        this.#failed(words(error));
        this.#waitAfter(error instanceof Unreachable ? error.retryAfter : 0);
      })
      .finally(() => {
        for (const [, ready] of leaving) ready.underWay = false;
        this.#leaving = undefined;
      });
  }

  async #run(): Promise<void> {
    if (this.#stopped) return;
    if (this.#turning) {
      this.#again = true; // what woke it may have come after its look
      return;
    }
    this.#turning = true;
    let delay: number;
    try {
      delay = await this.#turn();
    } catch (error) {
      this.#failed(words(error)); // a fault of ours must not end the delivery
      delay = this.#waitAfter(0);
      this.#answerFlushes(delay);
    }
    this.#turning = false;
    if (this.#again) delay = 0;
    this.#again = false;
    this.wake(delay);
  }

  /** Fetch the plan and send batches where due; return the milliseconds until the next turn. */
  async #turn(): Promise<number> {
    if (this.#pauses) return AGAIN;
    await this.#leaving;
    const rest = this.#notBefore - performance.now();
    if (rest > 0) {
      this.#answerFlushes(rest); // a failing server must not be asked by events
      return rest;
    }
    if (isOffline()) {
      this.#failed("this device is offline");
      this.#answerFlushes(Infinity);
      return IDLE; // the event "online" comes first
    }
    const flushes = [...this.#flushes]; // one that comes later may wait for later reports
    const everything = flushes.length > 0;
    let sent: { wait: number | undefined; waits: outbox.Waiting | undefined };
    try {
      const exclusively =
        this.store.exclusively?.bind(this.store) ??
        ((_: string, work: () => Promise<any>) => work());
      sent = await exclusively(`send ${this.places.name}`, () => this.#send(everything));
    } catch (error) {
      if (this.#pauses || this.#stopped) return AGAIN; // the call was ended, and did not fail
      if (error instanceof Unreachable) this.keeper.failed(error);
      else if (!(error instanceof Trouble)) throw error;
      this.#failed(error.message);
      sent = { wait: error instanceof Unreachable ? error.retryAfter : 0, waits: undefined };
    }
    const { wait, waits } = sent;
    if (wait !== undefined || !waits) {
      if (this.#pauses || this.#stopped) return AGAIN;
      const delay = this.#waitAfter(wait ?? 0);
      this.#answerFlushes(delay);
      return delay;
    }
    [this.#failures, this.#notBefore, this.#asked, this.lastError] = [0, 0, false, ""];
    if (everything && waits.consent && (waits.batches || waits.reports)) {
      this.#answerFlushes(AGAIN); // they came meanwhile
      return AGAIN;
    }
    for (const flush of flushes) flush.answer(true);
    const idle = waits.forgets
      ? Math.min(IDLE, Math.max(AGAIN, this.#forgetAt - performance.now()))
      : IDLE;
    if (!waits.reports || this.#held !== "nothing") {
      return waits.consent && (await this.keeper.lacksSomething())
        ? Math.min(idle, this.delivery.longestWait)
        : idle;
    }
    const age = this.clock() - waits.oldest;
    return Math.min(Math.max(10, this.delivery.batchAge - age), this.delivery.longestWait, idle);
  }

  /** Whether the server asked to be left alone for longer. */
  get #mustWait(): boolean {
    return this.#asked && performance.now() < this.#notBefore;
  }

  /** Set, and return, the milliseconds to wait after a failure; `retryAfter` are those that the server
   * asked for, 0 where it asked for none. */
  #waitAfter(retryAfter: number): number {
    this.#asked = retryAfter > 0 || this.#mustWait;
    const rest = this.#asked ? this.#notBefore - performance.now() : 0;
    const delay = Math.max(rest, this.#backOff(this.#failures++, retryAfter));
    this.#notBefore = performance.now() + delay;
    this.log(`the next try is in ${Math.round(delay)} ms: ${this.lastError}`);
    return delay;
  }

  /** Return the wait after another failure: never less than the server asked. */
  #backOff(failures: number, retryAfter: number): number {
    const { firstWait, longestWait } = this.delivery;
    const wait = Math.min(longestWait, firstWait * 2 ** Math.min(failures, 30));
    // Spread retries out, so that a crowd of devices does not return at once.
    return Math.max(retryAfter, wait * (0.5 + Math.random() / 2));
  }

  /** Answer the flushes that time out before the next try. */
  #answerFlushes(nextTry: number): void {
    const until = performance.now() + nextTry;
    for (const flush of this.#flushes) if (flush.deadline < until) flush.answer(false);
  }

  /** Send due batches; return no `wait` where none of them is left, else the milliseconds that the server
   * asked to wait (0: it asked for nothing), and the state of the queue. */
  async #send(everything: boolean): Promise<{ wait: number | undefined; waits: outbox.Waiting }> {
    const { store, places, delivery } = this;
    await this.#leaving;
    await this.keeper.look();
    await unlessFull(this.consent.catchUp());
    for (;;) {
      let full: Trouble | undefined;
      let waits = await transact(store, "read", () => outbox.waiting(places, delivery.batchRows));
      if (waits.forgets) waits = { ...waits, forgets: !(await this.#forget()) };
      if (!waits.consent) this.dropReady(); // a page that is left must not send what was dropped
      if (!waits.consent || this.#stopped) return { wait: undefined, waits };
      await unlessFull(this.counters.keep(KEEP));
      if (await this.keeper.isDue(delivery.planAge, delivery.longestWait)) {
        full = await unlessFull(this.keeper.fetch(delivery.timeout));
      }
      const look = await this.keeper.held();
      this.#held = look.held;
      if (look.held === "all") return { wait: undefined, waits };
      if (!this.consent.maySend)
        throw new Trouble("disk", "nothing is sent before a revocation is noted in the ledger");
      const age = this.clock() - waits.oldest;
      const due =
        everything ||
        waits.reports >= delivery.batchRows ||
        waits.size >= delivery.batchBytes ||
        !(age >= 0 && age < delivery.batchAge); // or the clock was set back
      if (waits.reports && due && look.held === "nothing")
        full = await unlessFull(this.#seal(look));
      else if (!waits.batches) return { wait: undefined, waits };
      const drops = this.#drops;
      const found = await transact(store, "read", () => list<BatchRow>(places.batches));
      const batches = await this.#ofThisPlan(found, look);
      if (drops !== this.#drops) continue; // they may be from before a revocation
      for (const [key, ready] of this.#ready) {
        // Another tab has sent it.
        if (!ready.underWay && !batches.some(([other]) => other === key)) this.#ready.delete(key);
      }
      for (const [key, { id, bytes, left }] of batches) {
        const known = this.#ready.get(key);
        if (known?.id !== id || !known.underWay)
          this.#ready.set(key, { id, bytes, left, underWay: false });
      }
      if (!batches.length) {
        if (full) throw full;
        return { wait: undefined, waits };
      }
      let late: number | undefined;
      for (const [key] of batches) {
        const wait = await this.#deliver(key);
        if (wait !== undefined) late = Math.max(late ?? 0, wait);
      }
      if (late !== undefined) return { wait: late, waits };
    }
  }

  /** Drop the batches that waited for another plan, and return the others. Its own plan may have had a batch sealed, or
   * split; and no server takes it, since a survey's plan never changes. */
  async #ofThisPlan(
    batches: readonly [string, BatchRow][],
    look: Look,
  ): Promise<[string, BatchRow][]> {
    const others = batches.filter(([, { revision }]) => revision !== look.revision);
    const now = others.length ? await this.keeper.held() : look;
    const isOurs = now.held !== "all" && now.revision === look.revision;
    for (const [key, { id, revision }] of isOurs ? others : []) {
      const detail = `a batch of revision ${revision.slice(0, 12)} waited for another plan`;
      console.error(`hearsay: ${detail}: it is dropped`);
      this.counters.tell("refused", 1, detail);
      const work = () => outbox.settle(this.places, key, id, "refused", this.clock());
      await unlessFull(transact(this.store, "relaxed", work));
    }
    return batches.filter(([, { revision }]) => revision === look.revision);
  }

  async #seal({ kept, revision }: Look): Promise<void> {
    const { batchRows, batchBytes } = this.delivery;
    const { plan } = this.keeper;
    if (plan?.sealing || plan?.twoServers)
      return sealSingly(this.store, this.places, plan, this.isPage, this.coins);
    let more = true;
    while (more) {
      more = await transact(this.store, "strict", () =>
        seal(this.places, kept, revision, batchRows, batchBytes, this.isPage, this.coins),
      );
    }
  }

  /** Submit one batch; return nothing once it left the queue, else the milliseconds to wait. */
  async #deliver(key: string): Promise<number | undefined> {
    const ready = this.#ready.get(key);
    if (!ready) return undefined; // dropped since: the next look tells what is left
    if (ready.underWay) await this.#leaving;
    if (this.#stopped || this.#pauses || this.#mustWait || !this.consent.maySend) return 0;
    const became = this.#answered.get(ready.id);
    if (became) return this.#settle(key, ready, became);
    const batch = await transact(this.store, ready.left ? "read" : "strict", () =>
      outbox.depart(key, ready.id),
    );
    if (!batch) {
      this.#ready.delete(key);
      return undefined; // dropped since: its person took back the consent
    }
    [ready.bytes, ready.left] = [batch.bytes, true];
    if (this.#stopped || this.#pauses || !this.consent.maySend) return 0;
    this.log(`send batch ${ready.id.slice(0, 12)}: ${ready.bytes.length} bytes`);
    ready.underWay = true;
    try {
      const answer = await this.transport.submit([ready.bytes], this.delivery.timeout);
      this.keeper.succeeded(answer.server_time);
      return await this.#take(key, ready, answer.results[0]!);
    } catch (error) {
      if (!(error instanceof InvalidInput)) throw error;
      this.#failed(`the server refuses a batch's request, and it stays queued: ${error.message}`);
      return 0;
    } finally {
      ready.underWay = false;
    }
  }

  /** Take the server's answer to a batch; return as `#deliver`. */
  async #take(
    key: string,
    ready: Ready,
    { status, reason, detail }: { status: number; reason: number; detail: string },
  ): Promise<number | undefined> {
    let became = FINAL[status];
    const told = onOneLine(detail);
    if (!became) {
      this.#failed(`the server does not take a batch yet, and it stays queued: ${told}`);
      await unlessFull(transact(this.store, "relaxed", () => outbox.putOff(key, ready.id)));
      return 0;
    }
    if (became === "refused") {
      console.error(`hearsay: a batch was refused: reason ${reason}, ${told}`);
      if (reason === PERIOD_CLOSED) became = "period_closed";
      this.counters.tell(became, 1, told);
    }
    this.log(`batch ${ready.id.slice(0, 12)}: ${became}`);
    [this.lastSuccess, this.lastError] = [Date.now(), ""];
    return this.#settle(key, ready, became);
  }

  /** Note a batch's final answer. Where the ledger is full it stays queued, and is not sent again. */
  async #settle(key: string, { id }: Ready, became: string): Promise<number | undefined> {
    this.#ready.delete(key);
    this.#answered.set(id, became);
    const work = () => outbox.settle(this.places, key, id, became, this.clock());
    if (await unlessFull(transact(this.store, "relaxed", work))) return 0;
    this.#answered.delete(id);
    await unlessFull(this.keeper.keepServerTime());
    return undefined;
  }

  /** Ask the server to forget, if that is due; return whether it has answered for all ids. It is asked
   * again until it has: a server that refuses holds up nothing else. */
  async #forget(): Promise<boolean> {
    if (performance.now() < this.#forgetAt) return false;
    const { store, places, transport, delivery } = this;
    for (const { period, ids } of await transact(store, "read", () => outbox.toForget(places))) {
      try {
        if ((await this.keeper.held()).held === "all")
          throw new Unreachable("requests to forget stay with what waits, for their plan");
        if (this.keeper.plan?.sealing) {
          for (const id of ids) await this.#forgetSealed(this.keeper.plan, period, id);
          continue;
        }
        const answer = await transport.forget(
          places.name,
          period,
          ids.map(unhex),
          delivery.timeout,
        );
        this.keeper.succeeded(answer.server_time);
      } catch (error) {
        if (!(error instanceof Unreachable || error instanceof InvalidInput)) throw error;
        console.warn(
          `hearsay: the server has not forgotten yet, and is asked again: ${error.message}`,
        );
        const asked = error instanceof Unreachable ? error.retryAfter : 0;
        this.#forgetAt = performance.now() + this.#backOff(this.#forgetFailures++, asked);
        return false;
      }
      await transact(store, "relaxed", () => outbox.forgotten(places, period, ids));
    }
    this.#forgetFailures = 0;
    return true;
  }

  /** Hand the shuffler a sealed request to forget one batch: several in one would tell that they are of one device. It is
   * sealed in the period that runs, and kept so that every retry sends the same bytes. */
  async #forgetSealed(plan: Plan, period: string, id: string): Promise<void> {
    const { store, places, delivery } = this;
    const key = `${places.forgets}${period}/${id}`;
    const [kept]: [unknown?] = await transact(store, "read", function* () {
      return (yield* get(key)) as [unknown?];
    });
    let bytes = kept instanceof Uint8Array ? kept : undefined;
    if (!bytes) {
      const { seal: sealed } = await import("../sealed/records.js");
      const now = label(plan.period, this.clock());
      const made = await sealed(plan, now, { forget: { period, id: unhex(id) } });
      await transact(store, "strict", () => put(key, made));
      bytes = made;
    }
    const answer = await this.transport.submit([bytes], delivery.timeout);
    this.keeper.hear(answer.server_time);
    const { status, detail } = answer.results[0]!;
    const became = FINAL[status];
    if (became === "refused") await transact(store, "relaxed", () => put(key, 1)); // its period is over, say
    if (!became || became === "refused")
      throw new Unreachable(`the shuffler says: ${onOneLine(detail)}`);
    await transact(store, "relaxed", () => outbox.forgotten(places, period, [id]));
  }

  #failed(why: string): void {
    if (this.lastError !== why)
      this.log(`nothing was delivered, and it will be tried again: ${why}`);
    this.lastError = why;
  }
}

function isOffline(): boolean {
  // Node has no such property, and there `undefined` is no offline.
  return (globalThis as { navigator?: { onLine?: boolean } }).navigator?.onLine === false;
}

/** Wait for a write to the ledger; return the `Trouble` where the disk fails, and throw any other.
 * Sending goes on where the disk is full: a sealed batch needs no space. */
async function unlessFull(write: Promise<unknown>): Promise<Trouble | undefined> {
  try {
    await write;
  } catch (error) {
    if (error instanceof Trouble && error.reason === "disk") return error;
    throw error;
  }
  return undefined;
}

/** Return the message of our own error, else its name: another message may hold an answer. */
function words(error: unknown): string {
  return error instanceof HearsayError ? error.message : nameOf(error);
}
