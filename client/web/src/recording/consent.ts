/** Each person's consent to one survey: in force at once, and noted in the ledger. */

import { get, put } from "../storage/store.js";
import { Trouble } from "../trouble.js";
import type { Counters } from "./counters.js";
import type { Ledger } from "./ledger.js";
import * as outbox from "./outbox.js";
import { EMPTY, type QueueRow } from "./places.js";

/** A change that the ledger does not have yet: a revocation, then, where both, a grant. */
interface Change {
  readonly revoke: boolean;
  /** The server is to be asked to forget. */
  readonly forget: boolean;
  readonly grant: boolean;
}

const NONE: Change = { revoke: false, forget: false, grant: false };

/**
 * The consent of each person to one survey.
 *
 * A change holds for this page or process at once. It is noted in the ledger now or, where the ledger
 * cannot be written, by a later `catchUp`. `onRevoked` is called after each revocation that was noted.
 */
export class Consent {
  readonly #due = new Map<string, Change>();
  #noting: Promise<void> = Promise.resolve();
  /** How often each person's consent was revoked on this page. */
  readonly #revocations = new Map<string, number>();

  constructor(
    private readonly ledger: Ledger,
    private readonly clock: () => number,
    private readonly counters: Counters,
    private readonly onRevoked: () => void,
  ) {}

  /** Grant a person's consent. A revocation that is pending stays so: the reports from before it are
   * dropped first. */
  grant(person: string): void {
    this.#due.set(person, { ...(this.#due.get(person) ?? NONE), grant: true });
  }

  /** Revoke a person's consent, so that sending stops. */
  revoke(person: string, forget: boolean): void {
    const before = this.#due.get(person) ?? NONE;
    this.#revocations.set(person, this.revocations(person) + 1);
    this.#due.set(person, { revoke: true, forget: forget || before.forget, grant: false });
  }

  /** Return how often a person's consent was revoked on this page: what was begun before a revocation must not be
   * recorded after it, also where the person has consented again. */
  revocations(person: string): number {
    return this.#revocations.get(person) ?? 0;
  }

  /** Tell whether a person's revocation is pending: the ledger still says consent. */
  isRevoked(person: string): boolean {
    return this.#due.get(person)?.revoke ?? false;
  }

  /** Tell whether a change of a person is pending. */
  isPending(person: string): boolean {
    return this.#due.has(person);
  }

  /** Whether no revocation is pending: until it is noted, reports of that person may wait among the
   * others. */
  get maySend(): boolean {
    return ![...this.#due.values()].some((change) => change.revoke);
  }

  /** Tell whether a person consents; throw `Trouble` where the ledger cannot tell. */
  async has(person: string): Promise<boolean> {
    return !this.isRevoked(person) && (await this.ledger.consents(person));
  }

  /** Note pending grants and revocations in the ledger; throw `Trouble` where one of them fails. */
  catchUp(): Promise<void> {
    if (!this.#due.size) return Promise.resolve();
    this.#noting = this.#noting.catch(() => {}).then(() => this.#note());
    return this.#noting;
  }

  /** Note all changes; throw the first error once the others are noted. */
  async #note(): Promise<void> {
    let dropped = 0;
    const failures: unknown[] = [];
    for (const [person, change] of [...this.#due]) {
      try {
        if (change.revoke) dropped += await this.#set(person, false, change.forget);
        if (change.grant) dropped += await this.#set(person, true, false);
        if (this.#due.get(person) === change) this.#due.delete(person);
      } catch (error) {
        failures.push(error);
        if (error instanceof Trouble && error.reason === "locked") break; // each would wait as long
      }
    }
    if (dropped) this.counters.tell("revoked", dropped);
    if (failures.length) throw failures[0];
  }

  /** Note consent or its end; return how many waiting reports are dropped. */
  async #set(person: string, granted: boolean, forget: boolean): Promise<number> {
    if (granted && (await this.ledger.consents(person))) return 0;
    if (granted) this.ledger.store.persist?.();
    const { places } = this.ledger;
    const at = this.clock();
    let dropped = 0;
    await this.ledger.changePerson(
      person,
      (row, survey) => ({
        ...row,
        consents: [...row.consents.filter((name) => name !== survey), ...(granted ? [survey] : [])],
      }),
      function* (row, key) {
        const had = row.consents.includes(places.name);
        dropped = 0;
        if (granted && had) return false; // another tab was first, and may have recorded since
        const [queue = EMPTY]: QueueRow[] = yield* get(places.queue);
        // At a grant, reports that still wait, if a revocation was cut short, were not consented to.
        const left = yield* outbox.dropPerson(places, queue, key, at, forget);
        dropped = left.dropped;
        const people = left.queue.people + Number(granted) - Number(had);
        yield* put(places.queue, { ...left.queue, people } satisfies QueueRow);
        return true;
      },
    );
    if (!granted) this.onRevoked();
    return dropped;
  }
}
