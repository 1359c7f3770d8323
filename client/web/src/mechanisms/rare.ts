/** The mechanisms that few surveys use, and policies: loaded when a plan has one. */

import { krrChain, unaryChain } from "./chains.js";
import { dbitflip } from "./dbitflip.js";
import { hadamard } from "./hadamard.js";
import { hashing } from "./hashing.js";
import { she } from "./histogram.js";
import { hrr } from "./hrr.js";
import { laplace } from "./laplace.js";
import { loloha } from "./loloha.js";
import type { Kind } from "./mechanism.js";
import { policySubsets } from "./policySubsets.js";
import { policyUnary } from "./policyUnary.js";
import { projective } from "./projective.js";
import { cms, hcms } from "./sketch.js";
import { ordered, policyTable, table } from "./table.js";

export { checkDeclared, checkGraded } from "./policy.js";

/** The rare mechanisms by their names in a plan. */
export const RARE: Readonly<Record<string, Kind>> = {
  cms,
  dbitflip,
  hadamard,
  hashing,
  hcms,
  hrr,
  krr_chain: krrChain,
  laplace,
  loloha,
  ordered,
  policy_subsets: policySubsets,
  policy_table: policyTable,
  policy_unary: policyUnary,
  projective,
  she,
  table,
  unary_chain: unaryChain,
};
