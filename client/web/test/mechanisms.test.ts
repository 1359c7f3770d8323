import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { SystemCoins } from "../src/coins.js";
import { InvalidInput } from "../src/errors.js";
import { build, type Mechanism, NAMES, type Value } from "../src/mechanisms/index.js";
import { RARE } from "../src/mechanisms/rare.js";

interface Case {
  name: string;
  epsilon: string;
  integers: Record<string, string[]>;
}

const cases = (
  JSON.parse(
    readFileSync(new URL("../../../protos/conformance/codes.json", import.meta.url), "utf8"),
  ) as {
    mechanisms: Case[];
  }
).mechanisms;
const examples = NAMES.map((name) => cases.find((each) => each.name === name)!);

const built = ({ name, epsilon, integers }: Case): Promise<Mechanism> =>
  build(
    name,
    Buffer.from(epsilon, "hex").readDoubleBE(),
    new Map(Object.entries(integers).map(([field, values]) => [field, values.map(BigInt)])),
  );

test("every mechanism that the registry names can be built, and the chunk of rare ones has no others", async () => {
  for (const example of examples) expect((await built(example)).name).toBe(example.name);
  expect(NAMES.filter((name) => name in RARE).sort()).toEqual(Object.keys(RARE).sort());
  expect(NAMES.length).toBe(31);
});

test.each(["gaussian", "", "toString", "__proto__"])("the name %o is refused", async (name) => {
  await expect(build(name, 1, new Map())).rejects.toThrow(InvalidInput);
});

describe.each(examples)("$name", (example) => {
  test("codes have the width of the mechanism, and values outside the domain are refused without being told", async () => {
    const mechanism = await built(example);
    const coins = new SystemCoins();
    const { k, most } = mechanism;
    const values: Record<Mechanism["input"], [outside: Value[], inside: Value[]]> = {
      number: [
        [-1.0000000000000002, 2.25, NaN, [0]],
        [-1, 0.3, 1],
      ],
      category: [
        [-1, k, 0.5, NaN, [0]],
        [0, k - 1],
      ],
      set: [
        [0, [-1], [k], [0.5], [NaN], [0, 0], [1, 0], Array.from({ length: most + 1 }, (_, i) => i)],
        [[], [0], [k - 1], Array.from({ length: most }, (_, i) => k - most + i)],
      ],
      text: [
        [1, [97], NaN, "\ud800"],
        ["", "word", "\u{1f600}"],
      ],
      word: [
        [1, [], [0], [k + 1], [0.5], [NaN], Array.from({ length: most + 1 }, () => 1)],
        [[1], [k], Array.from({ length: most }, () => k)],
      ],
    };
    const [outside, inside] = values[mechanism.input];
    for (const value of inside)
      expect(mechanism.randomize(value, coins).length).toBe(mechanism.width);
    for (const value of outside) {
      expect(() => mechanism.randomize(value, coins)).toThrow(InvalidInput);
      if (value === 2.25) expect(() => mechanism.randomize(value, coins)).not.toThrow(/2\.25/);
    }
  });

  test("missing, added and doubled integers are refused, and an epsilon outside (0, 32]", async () => {
    const [field] = Object.keys(example.integers) as [string];
    const { [field]: values, ...missing } = example.integers;
    const spoiled: Case[] = [
      { ...example, integers: missing },
      { ...example, integers: { ...example.integers, more: ["1"] } },
      { ...example, integers: { ...example.integers, [field]: [] } },
      { ...example, integers: { ...example.integers, [field]: values!.map(() => "0") } },
      ...[0, -1, NaN, Infinity, 32.00000000000001].map((epsilon) => {
        const bytes = Buffer.alloc(8);
        bytes.writeDoubleBE(epsilon);
        return { ...example, epsilon: bytes.toString("hex") };
      }),
    ];
    for (const each of spoiled) await expect(built(each)).rejects.toThrow(InvalidInput);
  });
});
