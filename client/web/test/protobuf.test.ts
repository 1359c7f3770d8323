import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { InvalidInput } from "../src/errors.js";
import { parsePlan } from "../src/plans/plan.js";
import {
  decodeForgetResponse,
  decodeGetPlanResponse,
  decodePlan,
  decodeSubmitResponse,
  encodeForgetRequest,
  encodeGetPlanRequest,
  encodePlan,
  encodeSubmitRequest,
  type WirePlan,
} from "../src/plans/protobuf.js";

const unhex = (text: string): Uint8Array => new Uint8Array(Buffer.from(text, "hex"));
const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString("hex");

// The expected bytes are those that Python's protobuf writes.
test("requests are written in protobuf's bytes", () => {
  expect(hex(encodeGetPlanRequest("health"))).toBe("0a066865616c7468");
  expect(hex(encodeSubmitRequest([Uint8Array.of(8, 1), new Uint8Array()]))).toBe("0a0208010a00");
  const forget = { survey: "s", period: "once", ids: [new Uint8Array(2), Uint8Array.of(255)] };
  expect(hex(encodeForgetRequest(forget))).toBe("0a017312046f6e63651a0200001a01ff");
});

test("answers are read, fields of later versions skipped", () => {
  // plan = 0102, server_time = 1700000000, then fields 99 of all wire types
  const unknown = "98062a" + "99060102030405060708" + "9a0603616263" + "9d0601020304";
  expect(decodeGetPlanResponse(unhex("0a02010210" + "80e2cfaa06" + unknown))).toEqual({
    plan: Uint8Array.of(1, 2),
    server_time: 1_700_000_000,
  });
  expect(decodeSubmitResponse(unhex("0a0208010a0a080310071a04676f6e65" + "1005"))).toEqual({
    results: [
      { status: 1, reason: 0, detail: "" },
      { status: 3, reason: 7, detail: "gone" },
    ],
    server_time: 5,
  });
  expect(decodeForgetResponse(unhex("0a020102")).results).toEqual([1, 2]);
  expect(decodeForgetResponse(unhex("08010802")).results).toEqual([1, 2]); // enums that are not packed
  expect(decodeForgetResponse(unhex("10ffffffffffffffffff01")).server_time).toBe(-1);
});

test.each(["0a05", "0aff", "10", "1a", "0b", "ffffffffffffffffffffff01"])(
  "bytes %s that end early or are none are refused",
  (text) => {
    expect(() => decodeGetPlanResponse(unhex(text))).toThrow(InvalidInput);
  },
);

const accepted = (
  JSON.parse(
    readFileSync(new URL("../../../protos/conformance/plans.json", import.meta.url), "utf8"),
  ) as {
    plans: { plan: string; accepted: boolean }[];
  }
).plans.filter((each) => each.accepted);

test("a plan is written in the bytes that it was read from", () => {
  expect(accepted.length).toBeGreaterThan(5);
  for (const { plan } of accepted) expect(hex(encodePlan(decodePlan(unhex(plan))))).toBe(plan);
});

test("no byte of a plan can be removed, doubled or moved without another revision or a refusal", async () => {
  const { plan } = accepted.reduce((a, b) => (a.plan.length <= b.plan.length ? a : b));
  const data = unhex(plan);
  const { revision } = await parsePlan(data);
  for (let at = 0; at < data.length; at++) {
    const without = Uint8Array.from([...data.slice(0, at), ...data.slice(at + 1)]);
    const doubled = Uint8Array.from([...data.slice(0, at), data[at]!, ...data.slice(at)]);
    for (const other of [without, doubled]) {
      const parsed = await parsePlan(other).catch((error: unknown) => {
        expect(error).toBeInstanceOf(InvalidInput);
        return undefined;
      });
      expect(parsed?.revision).not.toBe(revision);
    }
  }
});

const changes: [what: string, change: (plan: WirePlan) => void][] = [
  ["no survey", (plan) => delete plan.survey],
  ["no levels", (plan) => plan.levels.splice(0)],
  ["a level of another epsilon", (plan) => (plan.survey!.levels[0]![1] *= 2)],
  [
    "a level that promises less than its mechanisms",
    (plan) => (plan.levels[0]!.epsilon = plan.survey!.levels[0]![1] = 1e-3),
  ],
  ["an attribute twice", (plan) => plan.survey!.attributes.push(plan.survey!.attributes[0]!)],
  [
    "a mechanism more than attributes",
    (plan) => plan.levels[0]!.mechanisms.push(plan.levels[0]!.mechanisms[0]!),
  ],
  ["an unknown mechanism", (plan) => (plan.levels[0]!.mechanisms[0]!.name = "toString")],
  [
    "an attribute without a domain",
    (plan) => (
      delete plan.survey!.attributes[0]!.categorical,
      delete plan.survey!.attributes[0]!.numeric
    ),
  ],
  ["a title that shows nothing", (plan) => (plan.survey!.title = "a\u200bb")],
  ["a title that is not in NFC", (plan) => (plan.survey!.title = "a\u0301")],
  ["a unit that is none", (plan) => (plan.survey!.period = "P2D")],
  ["an epsilon that is not a number", (plan) => (plan.levels[0]!.mechanisms[0]!.epsilon = NaN)],
  [
    "an epsilon below that of the integers",
    (plan) => (plan.levels[0]!.mechanisms[0]!.epsilon *= 1 - 2 ** -40),
  ],
  ["a cap below the mechanism's epsilon", (plan) => (plan.survey!.attributes[0]!.cap = 1e-3)],
  ["a chance more", (plan) => plan.levels[0]!.chances.push(1n)],
];

test.each(changes)("a plan with %s is refused", async (_, change) => {
  for (const { plan } of accepted.slice(0, 4)) {
    const changed = decodePlan(unhex(plan));
    change(changed);
    await expect(parsePlan(encodePlan(changed))).rejects.toThrow(InvalidInput);
  }
});
