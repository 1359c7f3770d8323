/** What docs/wire.md says of the headers of a device's calls. */

import { readFileSync } from "node:fs";

const PAGE = new URL("../../../docs/wire.md", import.meta.url);

/** Return the names of the headers that the page lists for a way to call. */
export function listed(way: string): string[] {
  const row = readFileSync(PAGE, "utf8")
    .split("\n")
    .find((line) => line.startsWith(`| ${way} |`));
  if (!row) throw new Error(`docs/wire.md lists no headers of ${way}`);
  return [...row.split("|")[2]!.matchAll(/`([^`]+)`/g)].map(([, name]) => name!).sort();
}
