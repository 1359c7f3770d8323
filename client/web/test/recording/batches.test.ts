import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { encodeBatch } from "../../src/plans/protobuf.js";
import { hex, unhex } from "../../src/recording/places.js";
import { sizeOf, together } from "../../src/recording/batches.js";

interface Case {
  survey: string;
  revision: string;
  period: string;
  id: string;
  rows: { attribute: string; level: string; map?: string; code: string }[][];
  bytes: string;
}

const FILE = new URL("../../../../protos/conformance/batches.json", import.meta.url);
const CASES: Case[] = JSON.parse(readFileSync(FILE, "utf8")).batches;

const rowsOf = ({ rows }: Case) =>
  rows.map((row) => ({
    person: "",
    codes: row.map(({ code, ...cohort }) => ({ ...cohort, codes: unhex(code) })),
  }));

test.each(CASES.map((given, i) => [i, given] as const))(
  "reports become the batch of the vectors (%i)",
  (_, given) => {
    expect(hex(encodeBatch(together(given.survey, given, rowsOf(given))))).toBe(given.bytes);
  },
);

test("a report takes no more bytes in a batch than it is counted with", () => {
  for (const given of CASES) {
    const rows = rowsOf(given);
    const counted = rows.reduce((sum, { codes }) => sum + sizeOf(codes), 0);
    expect(given.bytes.length / 2).toBeLessThanOrEqual(counted + 3 * given.survey.length);
  }
});
