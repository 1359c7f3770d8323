/** Answers as their domains encode them, and as mechanisms take them. */

import type { Coins } from "../coins.js";
import type { Value } from "../mechanisms/mechanism.js";
import type { Domain, Grid } from "./domains.js";
import type { Rating } from "./sets.js";

/** An answer as its domain encodes it, a word as itself; `settled` makes a mechanism's value of it. */
export type Encoded = Value | readonly Rating[] | string;

/** Return an encoded answer as a mechanism takes it; of sets and ratings by draws. */
export function settled(domain: Domain | Grid, encoded: Encoded, coins: Coins): Value {
  if (domain.kind === "ratings") return domain.settled(encoded as readonly Rating[], coins);
  if (domain.kind === "set") return domain.settled(encoded as readonly number[], coins);
  if (domain.kind === "strings") return domain.settled(encoded as string);
  return encoded as number;
}

/** Return a value of a domain drawn uniformly, as a mechanism takes it: it takes the place of an answer that
 * must not be reported. */
export function anything(domain: Domain | Grid, coins: Coins): Value {
  return settled(domain, domain.anything(coins), coins);
}
