/** Split a record between two servers: where its noise is drawn, and its epsilon is spent. */

import type { Limits } from "../choices.js";
import type { Coins } from "../coins.js";
import { cellsOf } from "../split/cells.js";
import { split } from "../split/shares.js";
import { sealShares } from "../sealed/shares.js";
import type { Account } from "./account.js";
import { type Code, hex } from "./places.js";
import type { Drawn, Values } from "./randomize.js";
import type { Terms } from "./terms.js";

export { checkServers } from "../sealed/shares.js";

const ID_BYTES = 16;

/** A record that is sealed to both servers, before it is known whether it may be reported. */
export interface Split {
  readonly id: string;
  readonly code: Code;
  /** Whether it has no answers. */
  readonly isEmpty: boolean;
}

/** The caps for life leave no epsilon for the answers: the record must have none. */
export class Unaffordable extends Error {}

/**
 * Return the record of some answers with its noise, split and sealed to the two servers of the plan.
 *
 * It is made before the transaction that charges it, which can wait for no cipher, and is in memory alone until then:
 * neither the answers, nor the record, nor an unsealed share is ever kept. `values` are as `randomize` takes them; an answer
 * outside the domain counts as none.
 *
 * Guarantee: that of `Plan.twoServers`, of the sums; each share by itself is uniform. What leaves has the same size
 * whatever the values are.
 */
export async function splitRecord(
  terms: Terms,
  values: Values,
  period: string,
  coins: Coins,
): Promise<Split> {
  const { plan, level } = terms;
  const [attribute] = plan.recorded.keys();
  const two = plan.twoServers!;
  const shares = await split(cellsOf(two, values, coins), two.bits, coins);
  const id = crypto.getRandomValues(new Uint8Array(ID_BYTES)); // never from the coins of a simulation
  const codes = await sealShares(plan, period, id, shares);
  const code = { attribute: attribute!, level: level.name, codes };
  return { id: hex(id), code, isEmpty: !values.size };
}

/**
 * Charge a record that is split, where the account and the caps allow it.
 *
 * A record is all answers of one call: whoever answers again in the same period is dropped as "spent". Throws
 * `Unaffordable`, with nothing changed, where only an empty record may be reported.
 */
export function charge(
  { code, isEmpty }: Split,
  values: Values,
  terms: Terms,
  account: Account,
  limits: readonly Limits[],
): Drawn {
  const { attribute: name } = code;
  const { epsilon } = terms.level;
  if (
    !account.mayReport(terms, name, epsilon, limits) ||
    !account.allows("calls", terms, name, epsilon, limits)
  ) {
    const dropped = new Map([...values.keys()].map((each) => [each, "spent"]));
    return { taken: [], codes: [], memos: [], dropped };
  }
  // Where memos of other surveys have used up a cap for life, the record is empty.
  if (!isEmpty && !account.allows("life", terms, name, epsilon, limits)) throw new Unaffordable();
  const costs = { calls: epsilon, life: isEmpty ? 0 : epsilon };
  account.report(name, epsilon, costs, terms.plan.twoServers!.delta);
  return { taken: [...values.keys()], codes: [code], memos: [], dropped: new Map() };
}
