/** Reasons why answers are not taken or sent, for apps to branch on and people to read. */

import { HearsayError, InvalidInput, NotReady, PlanRefused, StorageFailed } from "./errors.js";

/**
 * Why answers are not taken or sent; also the name of the counter of drops.
 *
 * - `ready`: answers are taken
 * - `disabled`: the client was made with `disabled: true`
 * - `no_consent`: this person has not consented, or revoked
 * - `no_plan`: the plan has not come yet; the server is being asked
 * - `bad_token`: the server does not accept the token, or asks for one; or the token is not printable ASCII
 * - `name_not_found`: the server's host name does not resolve (a browser does not tell: `unreachable`)
 * - `tls`: no secure connection (a browser does not tell: `unreachable`)
 * - `unreachable`: the server does not answer
 * - `server_refused`: the server answers, and refuses the request: it has no such survey, say
 * - `plan_refused`: the server's plan breaks a promise, a cap, or the choices made
 * - `plan_changed`: the app accepts another plan now; the old plan's period is not answered again
 * - `new_ledger`: the ledger is younger than the period: an earlier one may have spent in it
 * - `lost_ledger`: an earlier ledger may be lost, and something counts for life
 * - `clock`: the clock cannot be right, or raised
 * - `locked`: another tab or process holds the ledger for longer than an answer may wait
 * - `disk`: the ledger cannot be read or written
 * - `other_schema`: another version of the SDK wrote the ledger
 * - `forked`: the ledger is in the memory of another process, which this one was copied from
 * - `closed`: the client was closed
 */
export type Reason =
  | "ready"
  | "disabled"
  | "no_consent"
  | "no_plan"
  | "bad_token"
  | "name_not_found"
  | "tls"
  | "unreachable"
  | "server_refused"
  | "plan_refused"
  | "plan_changed"
  | "new_ledger"
  | "lost_ledger"
  | "clock"
  | "locked"
  | "disk"
  | "other_schema"
  | "forked"
  | "closed";

/** Whether answers are taken now, and if not, why; and how the last call to the server failed. */
export interface Status {
  readonly reason: Reason;
  /** More about the reason, for people; "" where there is nothing to add. */
  readonly detail: string;
  /** The last error of the transport in words, "" where the last call succeeded. */
  readonly transport: string;
  /** Whether answers are taken: `reason` is "ready". */
  readonly ready: boolean;
}

/** Return a status; `ready` follows from the reason. */
export function statusOf(reason: Reason, detail = "", transport = ""): Status {
  return { reason, detail, transport, ready: reason === "ready" };
}

/** Why an answer is not taken or sent. It never reaches the app, which asks `Client.status`. */
export class Trouble extends HearsayError {
  override name = "Trouble";

  constructor(
    readonly reason: Reason,
    readonly detail = "",
  ) {
    super(detail || reason);
  }
}

/** A call got no answer, or one that refuses it for now. */
export class Unreachable extends HearsayError {
  override name = "Unreachable";

  /** `retryAfter` is the delay that the server asked for, in milliseconds; 0 where it asked for none. */
  constructor(
    message: string,
    readonly reason: Reason = "unreachable",
    readonly retryAfter = 0,
  ) {
    super(message);
  }
}

/** Return the error that tells the app of a reason, with `words` as its message. */
export function toThrow(reason: Reason, words: string): HearsayError {
  switch (reason) {
    case "plan_refused":
      return new PlanRefused(words);
    case "server_refused":
    case "clock":
    case "closed":
      return new InvalidInput(words); // the caller can mend these
    case "disk":
    case "other_schema":
    case "new_ledger":
    case "lost_ledger":
    case "forked":
      return new StorageFailed(words);
    default:
      return new NotReady(words);
  }
}
