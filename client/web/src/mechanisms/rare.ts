/** The mechanisms that few surveys use, and policies: loaded when a plan has one. */

import type { Kind } from "./mechanism.js";

export { checkDeclared } from "./policy.js";

/** The rare mechanisms by their names in a plan. */
export const RARE: Readonly<Record<string, Kind>> = {};
