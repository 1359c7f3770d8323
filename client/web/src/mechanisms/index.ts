/** The registry of all mechanisms that a plan can have. */

import type { Coins } from "../coins.js";
import { certainlyAtMost, fromDouble, MAX_EPSILON } from "../core/exact.js";
import { InvalidInput } from "../errors.js";
import { hybrid } from "./hybrid.js";
import { krr } from "./krr.js";
import {
  type AnyParts,
  checkSet,
  checkText,
  checkValue,
  checkWord,
  Integers,
  type Kind,
  type Mechanism,
  type Value,
} from "./mechanism.js";
import { onebit, windowed } from "./numbers.js";
import { subset } from "./subset.js";
import { unary } from "./unary.js";

export type { Mechanism, Rounds, Value } from "./mechanism.js";

type AnyKind = Kind<AnyParts>;

/** The mechanisms that "auto" and most surveys choose: they are there at once. */
const COMMON: Readonly<Record<string, Kind>> = {
  krr,
  unary,
  subset,
  onebit,
  hybrid,
  piecewise: windowed,
  square_wave: windowed,
};

/** The names of the others, which are loaded when a plan has one. */
const RARE = [
  "cms dbitflip hadamard hashing hcms hrr krr_chain laplace loloha ordered",
  "policy_subsets policy_table policy_unary projective she table unary_chain",
]
  .join(" ")
  .split(" ");

/** Mechanisms of richer questions, each loaded by itself when a plan has it. */
const OWN: Readonly<Record<string, () => Promise<AnyKind>>> = {
  mean_table: async () => (await import("./meanTable.js")).meanTable,
  policy_mean_table: async () => (await import("./meanTable.js")).policyMeanTable,
  prefix_hashing: async () => (await import("./prefixHashing.js")).prefixHashing,
  rappor: async () => (await import("./rappor.js")).rappor,
  set_selection: async () => (await import("./setSelection.js")).setSelection,
  waves: async () => (await import("./waves.js")).waves,
  set_bits: async () => (await import("./setBits.js")).setBits,
};

/** The names of all mechanisms that a plan can have. */
export const NAMES: readonly string[] = [...Object.keys(COMMON), ...RARE, ...Object.keys(OWN)];

/** Return a kind of mechanism by its name in a plan; throw `InvalidInput` for an unknown name. */
async function named(name: string): Promise<AnyKind> {
  if (Object.hasOwn(COMMON, name)) return COMMON[name]!;
  if (RARE.includes(name)) return (await import("./rare.js")).RARE[name]!;
  if (Object.hasOwn(OWN, name)) return OWN[name]!();
  throw new InvalidInput(
    `unknown mechanism ${JSON.stringify(name)}: use the version that the server has`,
  );
}

/** Throw `InvalidInput` unless epsilon is in (0, 32]. */
export function checkEpsilon(epsilon: number, what = "epsilon"): void {
  if (!(epsilon > 0 && epsilon <= MAX_EPSILON)) {
    throw new InvalidInput(
      `${what} must be finite, > 0 and at most ${MAX_EPSILON}, got ${epsilon}`,
    );
  }
}

/**
 * Build a mechanism from its name, epsilon and integers in a plan, certified in exact arithmetic.
 *
 * Throws `InvalidInput` for an unknown name, for missing or unknown integers or such outside their ranges,
 * and where the integers exceed epsilon, or the policy among them.
 */
export async function build(
  name: string,
  epsilon: number,
  parameters: ReadonlyMap<string, readonly bigint[]>,
): Promise<Mechanism> {
  const kind = await named(name);
  checkEpsilon(epsilon, `${name}: epsilon`);
  checkFields(name, kind, parameters);
  const parts = kind.make(new Integers(name, parameters), epsilon);
  const { n, d } = parts.ratio;
  // A mechanism with a policy has checked it, pair by pair, and epsilon with it.
  if (!("policy" in parts) && !certainlyAtMost(parts.ratio, fromDouble(epsilon))) {
    throw new InvalidInput(
      `${name}: the integers give epsilon ${Math.log(Number(n) / Number(d))}, more than the ${epsilon} they were meant for`,
    );
  }
  return complete(name, epsilon, parameters, parts);
}

function checkFields(
  name: string,
  kind: AnyKind,
  parameters: ReadonlyMap<string, readonly bigint[]>,
): void {
  const single = new Map(
    kind.fields.map((field) => [field.replace("*", ""), !field.endsWith("*")]),
  );
  if (
    parameters.size !== single.size ||
    ![...parameters.keys()].every((field) => single.has(field))
  ) {
    throw new InvalidInput(
      `${name} takes the integers ${kind.fields}, got ${[...parameters.keys()]}`,
    );
  }
  for (const [field, values] of parameters) {
    if (!values.some(Boolean) || (single.get(field) && values.length !== 1)) {
      throw new InvalidInput(
        `${name}: ${field} must have ${single.get(field) ? "one integer" : "integers"} above 0`,
      );
    }
  }
}

function complete(
  name: string,
  epsilon: number,
  integers: ReadonlyMap<string, readonly bigint[]>,
  parts: AnyParts,
): Mechanism {
  const { width, ratio } = parts;
  const same = { name, epsilon, width, ratio, integers };
  if ("items" in parts) {
    return {
      ...same,
      input: "set",
      k: parts.items,
      most: parts.most,
      policy: undefined,
      rounds: undefined,
      randomize(value: Value, coins: Coins): Uint8Array {
        checkSet(name, parts, value);
        return parts.draw(value, coins);
      },
    };
  }
  if ("letters" in parts) {
    return {
      ...same,
      input: "word",
      k: parts.letters,
      most: parts.longest,
      policy: undefined,
      rounds: undefined,
      randomize(value: Value, coins: Coins): Uint8Array {
        checkWord(name, parts, value);
        return parts.draw(value, coins);
      },
    };
  }
  if ("text" in parts) {
    return {
      ...same,
      input: "text",
      k: 0,
      most: 0,
      policy: undefined,
      rounds: parts.rounds,
      randomize(value: Value, coins: Coins): Uint8Array {
        checkText(name, value);
        return parts.draw(value, coins);
      },
    };
  }
  const { k, policy, rounds, draw } = parts;
  return {
    ...same,
    input: k ? "category" : "number",
    k: k ?? 0,
    most: 0,
    policy,
    rounds,
    randomize(value: Value, coins: Coins): Uint8Array {
      checkValue(name, k, value);
      return draw(value, coins);
    },
  };
}
