/** Unary encoding under a policy: every class of values has bits of its own. */

import { coin, threshold } from "../core/draws.js";
import { fraction, ONE } from "../core/exact.js";
import type { Kind } from "./mechanism.js";
import { readPolicy } from "./table.js";
import { rowBytes, setBit, tossRow } from "./unary.js";

/**
 * Report k independent bits: the own one is 1 with own[a] / 2^64, another's with other[b] / 2^64, for the
 * classes a and b of the two values.
 *
 * Sources: Murakami and Kawamoto, USENIX Security 2019, section 4.2; Gu, Li, Xiong and Cao, "Providing
 * input-discriminative protection for local differential privacy", ICDE 2020, section V.
 */
export const policyUnary: Kind = {
  fields: ["k", "own*", "other*", "policy*"],
  make(given, epsilon) {
    const k = given.categories(2 ** 16);
    const policy = readPolicy(given, k);
    const [own, other] = [given.list("own"), given.list("other")];
    const size = policy.members.length;
    given.check(own.length === size && other.length === size, "own, other");
    given.check(
      own.every((p, a) => other[a]! < p),
      "own, other",
    );
    const ratios = own.map((p, a) =>
      own.map((r, b) =>
        other[a]! ? fraction(p * (ONE - other[b]!), other[a]! * (ONE - r)) : undefined,
      ),
    );
    const masks = policy.members.map((values) => {
      const mask = new Uint8Array(rowBytes(k));
      for (const value of values) setBit(mask, value, true);
      return mask;
    });
    const [owns, others] = [own.map(threshold), other.map(threshold)];
    return {
      k,
      width: rowBytes(k),
      policy,
      ratio: policy.check(given.name, epsilon, ratios),
      draw(value, coins) {
        const code = new Uint8Array(rowBytes(k));
        for (const [a, mask] of masks.entries()) {
          tossRow(others[a]!, k, coins).forEach((byte, i) => (code[i]! |= byte & mask[i]!));
        }
        setBit(code, value, coin(owns[policy.classes[value]!]!, coins));
        return code;
      },
    };
  },
};
