/** Kinds of answers: the rest of the SDK asks a kind, and does not tell kinds apart by itself. */

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const SOURCES = fileURLToPath(new URL("../../src", import.meta.url));

/** What tells a kind by its word, its class, a member that only some have, or the field of a plan's message. */
const SITES: readonly RegExp[] = [
  /(?<!this)\.kind\b\s*[!=]==/g,
  /switch \(\w*(domain|kind)\w*\.(name|kind)\)/g,
  /\b(domain|kind)\w*\.name\b\s*[!=]==/g,
  /\b(instanceof|as) (Binned|Categorical|GradedNumeric|Grid|Numeric|Ratings|SetOf|Strings)\b/g,
  /"\w+" in (domain|kind)\b/g,
  /\.(categorical|numeric|set|ratings|strings)\?\./g,
  /\b(if|else if) \((categorical|numeric|set|ratings|strings)\)/g,
  /\(\{[^}]*\b(categorical|numeric|set|ratings|strings)\b[^}]*\}(: \w+)?\)(: \w+)? =>/g,
];

/** Return the places in a text that tell a kind, as `line: code`. */
function sitesOf(text: string): string[] {
  return text
    .split("\n")
    .flatMap((line, i) =>
      SITES.flatMap((site) => line.match(site) ?? []).map((code) => `${i + 1}: ${code}`),
    );
}

test("each way to tell a kind counts", () => {
  const ways = [
    'if (domain.kind === "categorical") {',
    'if (domain.kind !== "numeric") return;',
    "switch (domain.kind) {",
    'if (kind.name === "set") return;',
    "const isListed = domain instanceof Categorical;",
    "(domain as Categorical | Binned).size",
    'mechanism.policy || "resolution" in domain',
    "for (const value of attribute.set?.values ?? [])",
    "const hasStrings = attributes.some(({ strings }) => strings);",
    "const hasSets = attributes.some(({ set, ratings }) => set || ratings);",
    "if (categorical) {",
  ];
  for (const way of ways) expect(sitesOf(way), way).not.toEqual([]);
});

test("what is outside of the room of kinds tells no kind", () => {
  const files = (readdirSync(SOURCES, { recursive: true }) as string[])
    .filter((file) => file.endsWith(".ts") && !file.startsWith(join("plans", "kinds")))
    .sort();
  expect(files).toContain(join("plans", "plan.ts"));
  const sites = files.flatMap((file) =>
    sitesOf(readFileSync(join(SOURCES, file), "utf8")).map((site) => `${file}:${site}`),
  );
  expect(sites).toEqual([]);
});
