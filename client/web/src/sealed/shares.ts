/** Seal the two shares of a record, each to its server: HPKE, without padding, since all of a survey have one size. */

import { InvalidInput } from "../errors.js";
import type { Plan } from "../plans/plan.js";
import type { TwoServers } from "../plans/twoServers.js";
import { unhex } from "../recording/places.js";
import type { Shares } from "../split/shares.js";
import { encrypted } from "./hpke.js";

const utf8 = new TextEncoder();
const LABEL = "hearsay/v1/share";

function twoServersOf(plan: Plan): TwoServers {
  if (plan.twoServers) return plan.twoServers;
  throw new InvalidInput(`the records of ${plan.survey} are not split between two servers`);
}

/** Throw `InvalidInput` unless shares can be sealed to both servers of a plan. */
export async function checkServers(plan: Plan): Promise<void> {
  const { leaderKey, helperKey } = twoServersOf(plan);
  if (!leaderKey.length)
    throw new InvalidInput("this plan has no leader's key: its survey is not registered");
  const nothing = new Uint8Array();
  for (const key of [leaderKey, helperKey]) await encrypted(nothing, key, nothing);
}

/** Return what a share is bound to: HPKE's `info`. */
export function infoOf(
  role: "leader" | "helper",
  plan: Plan,
  period: string,
  id: Uint8Array,
): Uint8Array {
  return Uint8Array.from([
    ...utf8.encode(`${LABEL}\0${role}\0${plan.survey}\0`),
    ...unhex(plan.revision),
    ...utf8.encode(`\0${period}\0`),
    ...id,
  ]);
}

/**
 * Seal share A to the leader and share B to the helper; return both, as a column's code.
 *
 * `id` is that of the record's batch: under another one the shares do not open. Guarantee: one server, without the other's
 * private key, learns nothing of the other's share (RFC 9180, section 9.1), and its own is uniform.
 */
export async function sealShares(
  plan: Plan,
  period: string,
  id: Uint8Array,
  { seed, rest }: Shares,
): Promise<Uint8Array> {
  const { leaderKey, helperKey } = twoServersOf(plan);
  const [first, second] = await Promise.all([
    encrypted(seed, leaderKey, infoOf("leader", plan, period, id)),
    encrypted(rest, helperKey, infoOf("helper", plan, period, id)),
  ]);
  const both = new Uint8Array(first.length + second.length);
  both.set(first);
  both.set(second, first.length);
  return both;
}
