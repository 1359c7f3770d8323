// How large the TypeScript SDK is in an app, beside other SDKs for browsers.
//
//     node tests/benchmarks/web_sizes.mjs
//
// It installs the other SDKs by npm into a folder for temporary files.

import { ours, peers, size } from "./web_bundles.mjs";

const shown = ({ minified, gzip }) =>
  `${(minified / 1000).toFixed(1)} | ${(gzip / 1000).toFixed(1)}`;

console.log("| bundle | minified, kB | gzip, kB |\n|---|--:|--:|");
const mine = ours();
console.log(`| Hearsay, what a page loads first | ${shown(size(mine, mine.core))} |`);
const common = mine.with("/plans/plan.ts");
console.log(
  `| Hearsay, with what reads a plan of the common mechanisms | ${shown(size(mine, common))} |`,
);
console.log(
  `| Hearsay, with all mechanisms and kinds of questions | ${shown(size(mine, [...mine.files.keys()]))} |`,
);
for (const [name, made] of peers()) {
  console.log(`| ${name} | ${shown(size(made, [...made.files.keys()]))} |`);
}
