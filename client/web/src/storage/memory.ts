/** A ledger in the memory of one process. */

import { Trouble } from "../trouble.js";
import type { Step, Store, Work } from "./store.js";

interface Table {
  readonly values: Map<string, unknown>;
  /** Whether each key came in order, so that the map's order is that of the keys. */
  inOrder: boolean;
  last: string;
}

/**
 * Keep a ledger in this process's memory, and lose it with the process.
 *
 * What was spent is forgotten then: a process that runs again, or a page that is loaded again, may
 * spend a period's epsilon again. The ledger cannot be copied: a structured clone of it is empty,
 * and in a process that was started from a snapshot of this one it refuses to be used.
 */
export class MemoryStore implements Store {
  readonly inMemory = true;
  readonly #tables = new Map<string, Table>();
  readonly #process = processId();

  async run<T>(work: () => Work<T>): Promise<T> {
    if (processId() !== this.#process) {
      throw new Trouble(
        "forked",
        "the ledger is in the memory of another process: use one that lasts",
      );
    }
    const undo: (() => void)[] = [];
    const steps = work();
    try {
      let step = steps.next();
      while (!step.done) step = steps.next(this.#answer(step.value, undo));
      return step.value;
    } catch (error) {
      for (const back of undo.reverse()) back();
      throw error;
    }
  }

  #answer(step: Step, undo: (() => void)[]): unknown {
    if (step.op === "get") return step.keys.map((key) => this.#table(key).values.get(key));
    if (step.op === "list") return this.#list(step.prefix, step.limit);
    const { key } = step;
    const table = this.#table(key);
    const before = table.values.get(key);
    undo.push(() => this.#set(table, key, before));
    return this.#set(table, key, step.op === "put" ? step.value : undefined);
  }

  #set(table: Table, key: string, value: unknown): void {
    if (value === undefined) {
      table.values.delete(key);
      return;
    }
    if (key > table.last) table.last = key;
    else if (!table.values.has(key)) table.inOrder = false;
    table.values.set(key, value);
  }

  #list(prefix: string, limit: number): [string, unknown][] {
    const { values, inOrder } = this.#table(prefix);
    const found: [string, unknown][] = [];
    for (const entry of values) {
      if (inOrder && found.length >= limit) break;
      if (entry[0].startsWith(prefix)) found.push(entry);
    }
    if (!inOrder) found.sort(([a], [b]) => (a < b ? -1 : 1));
    return found.slice(0, limit);
  }

  /** Return the table of a key: those before the first "/", so that a listing reads few others. */
  #table(key: string): Table {
    const name = key.split("/", 1)[0] ?? "";
    let table = this.#tables.get(name);
    if (!table) this.#tables.set(name, (table = { values: new Map(), inOrder: true, last: "" }));
    return table;
  }
}

/** Return what tells this process from others, where there is such a thing. */
function processId(): unknown {
  return (globalThis as { process?: { pid?: number } }).process?.pid;
}
