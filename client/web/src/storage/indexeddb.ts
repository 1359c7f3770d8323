/** A ledger in the browser's IndexedDB, shared by the tabs and workers of an origin. */

import { Trouble } from "../trouble.js";
import { after } from "../timers.js";
import { type Durability, nameOf, type Store, type Work } from "./store.js";

const TABLE = "ledger";
const VERSION = 1;

/** Milliseconds after which a database that does not open is given up for now. */
const OPENING = 10_000;

/**
 * Keep a ledger in IndexedDB. All tabs and workers of the origin share the database `name`.
 *
 * A transaction that gets no turn within `wait` milliseconds changes nothing and ends as "locked".
 */
export class IndexedDbStore implements Store {
  #opening: Promise<IDBDatabase> | undefined;

  constructor(
    readonly name = "hearsay",
    readonly wait = 2000,
  ) {}

  async run<T>(work: () => Work<T>, durability: Durability): Promise<T> {
    for (let again = false; ; again = true) {
      const database = await this.#open();
      let transaction: IDBTransaction;
      try {
        transaction = database.transaction(
          TABLE,
          durability === "read" ? "readonly" : "readwrite",
          durability === "read" ? {} : { durability },
        );
      } catch (error) {
        this.#opening = undefined; // the browser closed it, as when site data are cleared
        if (again) throw error;
        continue;
      }
      return driven(transaction, work, this.wait);
    }
  }

  async exclusively<T>(name: string, work: () => Promise<T>): Promise<T> {
    const locks = (globalThis as { navigator?: { locks?: LockManager } }).navigator?.locks;
    return locks ? locks.request(`${this.name}: ${name}`, work) : work();
  }

  persist(): void {
    // Some browsers ask the user, so this is asked for when they consent, and never waited for.
    globalThis.navigator?.storage?.persist?.().catch(() => {});
  }

  close(): void {
    this.#opening?.then((database) => database.close()).catch(() => {});
    this.#opening = undefined;
  }

  #open(): Promise<IDBDatabase> {
    this.#opening ??= opened(this.name, () => {
      this.#opening = undefined;
    });
    this.#opening.catch(() => {
      this.#opening = undefined;
    });
    return this.#opening;
  }
}

function opened(name: string, forget: () => void): Promise<IDBDatabase> {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open(name, VERSION);
    let late = false;
    const timer = setTimeout(() => {
      late = true; // some browsers never answer
      reject(new Trouble("locked", "the browser did not open the ledger in time"));
    }, OPENING);
    request.onupgradeneeded = () => request.result.createObjectStore(TABLE);
    request.onsuccess = () => {
      clearTimeout(timer);
      const database = request.result;
      if (late) return database.close();
      database.onclose = forget;
      database.onversionchange = () => {
        forget(); // somebody deletes the database, or a later version of the SDK changes it
        database.close();
      };
      resolve(database);
    };
    request.onerror = () => {
      clearTimeout(timer);
      reject(
        request.error?.name === "VersionError"
          ? new Trouble("other_schema", "another version of the SDK wrote the ledger")
          : new Trouble("disk", `the ledger cannot be opened: ${nameOf(request.error)}`),
      );
    };
  });
}

/** Drive the steps of `work` by the events of one transaction. */
function driven<T>(transaction: IDBTransaction, work: () => Work<T>, wait: number): Promise<T> {
  return new Promise((resolve, reject) => {
    const table = transaction.objectStore(TABLE);
    const steps = work();
    let result: T;
    const fail = (error: unknown): void => {
      try {
        transaction.abort();
        reject(error); // nothing of it is kept, whenever the event comes
      } catch {
        // it is over already, and its own event says how
      }
    };
    const timer = after(wait, () =>
      fail(new Trouble("locked", `the ledger was in use for ${wait} ms`)),
    );
    let hasTurn = false;
    const begun = (): void => {
      hasTurn = true;
      clearTimeout(timer);
    };
    const advance = (answer?: unknown): void => {
      try {
        for (let step = steps.next(answer); ; step = steps.next()) {
          if (step.done) {
            result = step.value;
            if (hasTurn) transaction.commit?.(); // it could not be given up after that
            return;
          }
          const each = step.value;
          if (each.op === "put" || each.op === "delete") {
            const request =
              each.op === "put" ? table.put(each.value, each.key) : table.delete(each.key);
            if (!hasTurn) request.onsuccess = begun; // each event that is heard costs a page time
          } else if (each.op === "get") {
            const requests = each.keys.map((key) => table.get(key));
            answered(requests, () => advance(requests.map((request) => request.result)));
            return;
          } else {
            const range = IDBKeyRange.bound(each.prefix, `${each.prefix}\uffff`);
            const most = each.limit === Infinity ? undefined : each.limit;
            const keys = table.getAllKeys(range, most);
            const values = table.getAll(range, most);
            answered([keys, values], () =>
              advance(keys.result.map((key, i) => [key, values.result[i]])),
            );
            return;
          }
        }
      } catch (error) {
        fail(error);
      }
    };
    const answered = (requests: IDBRequest[], next: () => void): void => {
      const last = requests.at(-1);
      if (!last) return next();
      last.onsuccess = () => {
        begun();
        next();
      };
    };
    transaction.oncomplete = () => {
      clearTimeout(timer);
      resolve(result);
    };
    transaction.onabort = () => {
      clearTimeout(timer);
      reject(transaction.error ?? new Trouble("disk", "the browser ended a transaction"));
    };
    advance();
  });
}
