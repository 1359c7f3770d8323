/** Randomise answers: where a report is drawn, afresh or from a memo, and its epsilon is spent. */

import type { Limits } from "../choices.js";
import type { Coins } from "../coins.js";
import type { Memoizer } from "../plans/memo.js";
import { get, put, type Work } from "../storage/store.js";
import type { Account } from "./account.js";
import { type Code, type Places, unhex } from "./places.js";
import type { Terms } from "./terms.js";

/** What is drawn for one record. */
export interface Drawn {
  readonly codes: Code[];
  /** The keys of new memos. */
  readonly memos: string[];
  /** The reasons why other answers were left out, by attribute. */
  readonly dropped: Map<string, string>;
}

/**
 * Randomise the answers that the account and caps allow, in a transaction.
 *
 * `values` are as mechanisms take them; undefined stands for an answer outside the domain. The account
 * spends the epsilon of each answer. `salt` is the ledger's.
 *
 * Guarantee: each code is drawn by a mechanism of the plan from the answer, or from a value drawn
 * uniformly from the domain where there is no answer or no epsilon left for its memo; which codes are
 * added does not depend on the values.
 */
export function* randomize(
  values: ReadonlyMap<string, number | undefined>,
  terms: Terms,
  account: Account,
  limits: readonly Limits[],
  place: { places: Places; person: string; salt: string },
  coins: Coins,
): Work<Drawn> {
  const drawn: Drawn = { codes: [], memos: [], dropped: new Map() };
  for (const [name, given] of values) {
    const mechanism = terms.mechanisms.get(name)!;
    const { epsilon } = mechanism;
    const calls = account.callsCost(terms, name);
    if (!account.isDrawn(name)) {
      drawn.dropped.set(name, "idle");
      continue;
    }
    if (!account.mayReport(name, epsilon) || !account.allows("calls", name, calls, limits)) {
      drawn.dropped.set(name, "spent");
      continue;
    }
    const memoizer = terms.memoizers.get(name);
    const { domain } = terms.plan.attributes.get(name)!;
    let codes: Uint8Array;
    let life: number;
    if (memoizer) {
      const prefix = place.places.memos(place.person, name, memoizer.identity);
      const memos = new Memos(
        prefix,
        unhex(place.salt),
        memoizer,
        drawn.memos,
        () => domain.anything(coins),
        coins,
      );
      const affordable = account.allows("life", name, memoizer.epsilon, limits);
      const { memo, isNew } = yield* memos.of(given, affordable);
      life = isNew ? memoizer.epsilon : 0;
      codes = memoizer.report(memo, coins);
    } else {
      life = account.allows("life", name, calls, limits) ? calls : 0;
      const value = given === undefined || !life ? domain.anything(coins) : given;
      codes = mechanism.randomize(value, coins);
    }
    account.report(name, epsilon, { calls, life });
    const map = terms.maps.get(name);
    const level = terms.levels.get(name)!.name;
    drawn.codes.push({ attribute: name, level, codes, ...(map !== undefined && { map }) });
  }
  return drawn;
}

/** The key of the bytes that the device drew once, before any answer. */
const DEVICE = "device";

/** The key of the memo of a random value: it is reported for answers outside the domain, and for new
 * ones that a cap for life leaves no epsilon for. It says nothing of any answer. */
const BLANK = "blank";

/** The memos of one person, attribute and mechanism, in one transaction. */
class Memos {
  constructor(
    private readonly prefix: string,
    private readonly salt: Uint8Array,
    private readonly memoizer: Memoizer,
    private readonly drawn: string[],
    private readonly anything: () => number,
    private readonly coins: Coins,
  ) {}

  /**
   * Return the memo of a value, and whether it is a new one that has to be paid for.
   *
   * Where there is no value, or its memo would be new and is not `affordable`, returns the memo of a
   * random value, which costs nothing.
   */
  *of(value: number | undefined, affordable: boolean): Work<{ memo: Uint8Array; isNew: boolean }> {
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

  *#draw(key: string, device: Uint8Array, value: number): Work<Uint8Array> {
    return yield* this.#keep(key, this.memoizer.memoize(device, value, this.coins));
  }

  *#keep(key: string, bytes: Uint8Array): Work<Uint8Array> {
    yield* put(this.prefix + key, bytes);
    this.drawn.push(this.prefix + key);
    return bytes;
  }
}
