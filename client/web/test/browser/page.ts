/** The script of a test's page: the SDK, where the test finds it. */

import * as hearsay from "../../src/index.js";

declare global {
  var hearsay: typeof import("../../src/index.js");
}

globalThis.hearsay = hearsay;
