/** A record as integers: what is split between two servers. Python's `ldp.two_servers.records` is the same. */

import type { Coins } from "../coins.js";
import { point } from "../core/draws.js";
import type { Encoded } from "../plans/kinds/index.js";
import type { TwoServers } from "../plans/twoServers.js";

/**
 * Return a record's cells, with the device's own part of the noise.
 *
 * An answer to a question with choices is `scale` in the cell of the choice; a number is rounded to a point u of 0..scale,
 * without bias, and fills two cells with u and scale - u. An absent answer, and one outside the domain, leaves zeros.
 */
export function cellsOf(
  { blocks, scale, cells, noise }: TwoServers,
  values: ReadonlyMap<string, Encoded | undefined>,
  coins: Coins,
): number[] {
  const exact = blocks.flatMap(({ name, size }) => {
    const value = values.get(name) as number | undefined;
    if (value === undefined) return Array<number>(size || 2).fill(0);
    if (size) return Array.from({ length: size }, (_, choice) => (choice === value ? scale : 0));
    const u = point(value, scale, coins);
    return [u, scale - u];
  });
  const added = noise.draws(cells, coins);
  return exact.map((cell, i) => cell + added[i]!);
}
