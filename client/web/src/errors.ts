/** The errors that this package throws; Python's `ldp.errors` has the same names. */

/** An error of Hearsay: catch this to catch them all. */
export class HearsayError extends Error {
  override name = "HearsayError";
}

/** An argument, an answer or a plan is not what is expected; the message says what is. */
export class InvalidInput extends HearsayError {
  override name = "InvalidInput";
}

/** The plan has not come yet, or the ledger is held by others: the same call may go well later. */
export class NotReady extends HearsayError {
  override name = "NotReady";
}

/** The server's plan breaks a promise, a cap, or the choices made. */
export class PlanRefused extends HearsayError {
  override name = "PlanRefused";
}

/** The ledger cannot be read or written. */
export class StorageFailed extends HearsayError {
  override name = "StorageFailed";
}

/** Run a check; name the place in its `InvalidInput`. */
export function at<T>(place: string, check: () => T): T {
  try {
    return check();
  } catch (error) {
    throw placed(place, error);
  }
}

/** Return an error with the place before its words, where it is an `InvalidInput`. */
export function placed(place: string, error: unknown): unknown {
  return error instanceof InvalidInput ? new InvalidInput(`${place}: ${error.message}`) : error;
}
