/** Counters of recorded and dropped answers, by reason, saved to the ledger now and then. */

import { get, nameOf, type Store, transact } from "../storage/store.js";
import * as outbox from "./outbox.js";
import type { Places } from "./places.js";

/** Counters that are no drops: an idle attribute was not drawn for the record, as the survey wants it. */
const NO_DROPS = ["recorded", "stored", "duplicate", "idle"];

const MEANS: Readonly<Record<string, string>> = {
  no_consent: "this person has not consented: call grant()",
  spent: "an attribute was answered in this period already, or a cap is used up",
  incomplete: "an answer that is asked together with this one was left out",
  unknown: "the survey has no such attribute",
  withheld: "the app withholds the attribute",
  overflow: "more waited than the queue holds",
  revoked: "this person took back the consent",
  invalid: "an answer was outside its domain: a random value is reported in its place",
  failed: "an error of the SDK's own",
};

/** Called with the reason of a drop, and the number of answers, reports or batches. */
export type OnDrop = (reason: string, count: number) => void;

/** The counters of one survey. The first drop of each reason is a warning of the console. */
export class Counters {
  #new: Record<string, number> = {};
  #kept = Date.now();
  readonly #warned = new Set<string>();

  constructor(
    private readonly store: Store,
    private readonly places: Places,
    private readonly onDrop: OnDrop | undefined,
  ) {}

  /** Add to a counter, and tell of a drop; `detail` must not contain an answer. */
  add(name: string, number = 1, detail = ""): void {
    this.#new[name] = (this.#new[name] ?? 0) + number;
    if (!NO_DROPS.includes(name)) this.tell(name, number, detail);
  }

  /** Warn at a reason's first drop and call `onDrop`, without counting. */
  tell(name: string, number: number, detail = ""): void {
    const replaced = name === "invalid"; // no loss: a report of a random value took the answer's place
    if (!this.#warned.has(name)) {
      this.#warned.add(name);
      const what = replaced ? "replaces an answer" : "drops answers";
      const why = detail || MEANS[name] || "see client.status()";
      console.warn(`hearsay: ${JSON.stringify(this.places.name)} ${what} (${name}): ${why}`);
    }
    if (replaced) return;
    try {
      this.onDrop?.(name, number);
    } catch (error) {
      console.error(`hearsay: onDrop threw ${nameOf(error)}`);
    }
  }

  /** Save new counts to the ledger, unless that was done within `age` milliseconds; throw `Trouble` where
   * the ledger cannot be used. */
  async keep(age = 0): Promise<void> {
    const found = this.#new;
    if (!Object.keys(found).length || Date.now() - this.#kept < age) return;
    this.#kept = Date.now();
    this.#new = {};
    try {
      await transact(this.store, "relaxed", () => outbox.count(this.places, found));
    } catch (error) {
      for (const [name, number] of Object.entries(found))
        this.#new[name] = (this.#new[name] ?? 0) + number;
      throw error;
    }
  }

  /** Return all counts ever; only the unsaved ones where the ledger cannot be read. */
  async read(): Promise<Record<string, number>> {
    let kept: Record<string, number> = {};
    try {
      [kept = {}] = await transact(this.store, "read", () => get(this.places.counters));
    } catch {
      // `status` says why
    }
    const found = { ...kept };
    for (const [name, number] of Object.entries(this.#new))
      found[name] = (found[name] ?? 0) + number;
    return found;
  }
}
