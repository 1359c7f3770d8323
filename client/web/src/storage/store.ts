/** The interface of a ledger's storage: ordered keys, values, and transactions over them. */

import { HearsayError } from "../errors.js";
import { Trouble } from "../trouble.js";

/** One step of a transaction, which the store answers before the next one. */
export type Step =
  /** Answered by the values of the keys, in their order; `undefined` for a key without a value. */
  | { readonly op: "get"; readonly keys: readonly string[] }
  /** Answered by at most `limit` pairs of key and value whose keys begin with `prefix`, in the
   * order of their keys by code units. Keys are ASCII. */
  | { readonly op: "list"; readonly prefix: string; readonly limit: number }
  | { readonly op: "put"; readonly key: string; readonly value: unknown }
  | { readonly op: "delete"; readonly key: string };

/** What a transaction does: a generator that yields its steps and returns its result. */
export type Work<T> = Generator<Step, T, any>;

/**
 * How a transaction ends: "read" changes nothing; "relaxed" may be lost in a power cut, and then so
 * are all later ones; "strict" is on the disk, with all that came before it, when `run` returns.
 */
export type Durability = "read" | "relaxed" | "strict";

/**
 * Where a ledger is kept. `IndexedDbStore` and `MemoryStore` are two; an app may provide its own.
 *
 * A store of your own keeps the promise only if
 * - `run` is one serialisable transaction: no other reads or writes what it touches meanwhile, in
 *   whichever thread, tab or process; all its changes are kept, or none;
 * - `run` rejects, with nothing changed, where `work` throws, and rejects with the same error;
 * - `run` resolves a "strict" transaction only once it survives a power cut;
 * - values come back as they were put: they are what the structured clone algorithm copies (plain
 *   objects, arrays, strings, numbers, booleans, Uint8Array), and nobody changes them;
 * - it is never restored from a backup, and never copied: an old copy has forgotten what was spent.
 *
 * `run` may call `work` again from the start after a transaction that was rolled back.
 */
export interface Store {
  /** Run one transaction; return what `work` returns. */
  run<T>(work: () => Work<T>, durability: Durability): Promise<T>;
  /** Run `work` while no other tab or process is in `exclusively` with this name. Without it two
   * processes may send the same batch, which the server counts once. */
  exclusively?<T>(name: string, work: () => Promise<T>): Promise<T>;
  /** Ask the browser not to evict the store. */
  persist?(): void;
  /** Release what is open; the next `run` opens it again. */
  close?(): void;
  /** Whether the store begins empty with each process and ends with it, as the app knows. */
  readonly inMemory?: boolean;
}

/** Read the values of some keys. */
export function* get(...keys: string[]): Work<any[]> {
  return yield { op: "get", keys };
}

/** Read the first pairs of key and value whose keys begin with `prefix`. */
export function* list<V>(prefix: string, limit = Infinity): Work<[string, V][]> {
  return yield { op: "list", prefix, limit };
}

/** Keep a value. */
export function* put(key: string, value: unknown): Work<void> {
  yield { op: "put", key, value };
}

/** Remove a key, if it is there. */
export function* remove(key: string): Work<void> {
  yield { op: "delete", key };
}

/**
 * Run a transaction. What `work` throws comes through; throws `Trouble`, with nothing changed, where
 * the store fails.
 */
export async function transact<T>(
  store: Store,
  durability: Durability,
  work: () => Work<T>,
): Promise<T> {
  let fault: { error: unknown } | undefined;
  function* guarded(): Work<T> {
    try {
      fault = undefined;
      return yield* work();
    } catch (error) {
      fault = { error };
      throw error;
    }
  }
  try {
    return await store.run(guarded, durability);
  } catch (error) {
    if (fault) throw fault.error;
    if (error instanceof HearsayError) throw error;
    // Without its message, which may have a value in it.
    throw new Trouble("disk", `the ledger cannot be used: ${nameOf(error)}`);
  }
}

/** Return the name of an error of others, whose message may hold an answer. */
export function nameOf(error: unknown): string {
  return error instanceof Error ? error.name : typeof error;
}
