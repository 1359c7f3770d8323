import "fake-indexeddb/auto";
import { expect, test } from "vitest";
import { IndexedDbStore, MemoryStore, type Store } from "../../src/index.js";
import { get, list, put, remove, transact, type Work } from "../../src/storage/store.js";
import { Trouble } from "../../src/trouble.js";

let made = 0;
const STORES: [string, () => Store][] = [
  ["MemoryStore", () => new MemoryStore()],
  ["IndexedDbStore", () => new IndexedDbStore(`ledger ${made++}`)],
];

const all = (prefix: string, limit?: number) => (): Work<[string, unknown][]> =>
  list(prefix, limit);

test.each(STORES)("%s gives back what was put, and nothing for other keys", async (_, make) => {
  const store = make();
  const value = { text: "ä", bytes: Uint8Array.of(0, 255), list: [1, -Infinity], yes: true };
  await store.run(() => put("a/1", value), "strict");
  expect(await store.run(() => get("a/1", "a/2"), "read")).toEqual([value, undefined]);
});

test.each(STORES)("%s lists by prefix, in the order of keys, up to a limit", async (_, make) => {
  const store = make();
  await store.run(function* () {
    for (const key of ["a/x/3", "a/x/1", "b/x/0", "a/y/0", "a/x/2", "a/x/10"]) yield* put(key, key);
    yield* remove("a/x/2");
  }, "relaxed");
  const keys = async (prefix: string, limit?: number) =>
    (await store.run(all(prefix, limit), "read")).map(([key, value]) =>
      key === value ? key : "wrong",
    );
  expect(await keys("a/x/")).toEqual(["a/x/1", "a/x/10", "a/x/3"]);
  expect(await keys("a/x/", 2)).toEqual(["a/x/1", "a/x/10"]);
  expect(await keys("b/")).toEqual(["b/x/0"]);
  expect(await keys("c/")).toEqual([]);
});

test.each(STORES)(
  "%s changes nothing where the work throws, at whichever step",
  async (_, make) => {
    const store = make();
    await store.run(() => put("a/1", "before"), "relaxed");
    await store.run(() => put("a/2", "kept"), "relaxed");
    for (let step = 0; step < 5; step++) {
      const work = function* (): Work<void> {
        if (step === 0) throw new RangeError("mine");
        yield* put("a/1", "after");
        if (step === 1) throw new RangeError("mine");
        yield* remove("a/2");
        if (step === 2) throw new RangeError("mine");
        yield* get("a/1");
        if (step === 3) throw new RangeError("mine");
        yield* put("a/3", "new");
        yield* put("a/1", "again");
        throw new RangeError("mine");
      };
      await expect(transact(store, "strict", work)).rejects.toThrow(new RangeError("mine"));
      expect(await store.run(all("a/"), "read")).toEqual([
        ["a/1", "before"],
        ["a/2", "kept"],
      ]);
    }
  },
);

test.each(STORES)(
  "%s lets transactions that begin at once see each other's changes whole",
  async (_, make) => {
    const store = make();
    const add = function* (): Work<number> {
      const [before = 0] = yield* get("n/1");
      const [again = 0] = yield* get("n/1");
      expect(again).toBe(before);
      yield* put("n/1", before + 1);
      return before;
    };
    const found = await Promise.all(Array.from({ length: 50 }, () => store.run(add, "relaxed")));
    expect(found.sort((a, b) => a - b)).toEqual([...Array(50).keys()]);
  },
);

test("two IndexedDbStores of one name are one ledger", async () => {
  const [a, b] = [new IndexedDbStore("shared"), new IndexedDbStore("shared")];
  await a.run(() => put("a/1", 1), "strict");
  expect(await b.run(() => get("a/1"), "read")).toEqual([1]);
});

test("a database that is deleted while it is open is an empty one, and breaks nothing", async () => {
  const store = new IndexedDbStore("deleted");
  await store.run(() => put("a/1", 1), "strict");
  await new Promise((resolve, reject) => {
    const request = indexedDB.deleteDatabase("deleted");
    request.onsuccess = resolve;
    request.onerror = reject;
  });
  expect(await store.run(() => get("a/1"), "read")).toEqual([undefined]);
});

test("a database of a later version of the SDK is left alone", async () => {
  await new Promise((resolve) => {
    const request = indexedDB.open("later", 99);
    request.onsuccess = () => {
      request.result.close();
      resolve(undefined);
    };
  });
  await expect(new IndexedDbStore("later").run(() => get("a"), "read")).rejects.toMatchObject({
    reason: "other_schema",
  });
});

test("a transaction that gets no turn in time changes nothing and is told as locked", async () => {
  const [holder, store] = [new IndexedDbStore("held", 60_000), new IndexedDbStore("held", 30)];
  let holds = true;
  const holding = holder.run(function* () {
    while (holds) yield* get("a/1"); // keeps the transaction alive
  }, "relaxed");
  await expect(store.run(() => put("a/1", 1), "relaxed")).rejects.toMatchObject({
    reason: "locked",
  });
  holds = false;
  await holding;
  expect(await store.run(() => get("a/1"), "read")).toEqual([undefined]);
});

test("a copy of a ledger in memory has nothing of it", async () => {
  const store = new MemoryStore();
  await store.run(() => put("secret/1", "spent"));
  expect(JSON.stringify(store)).not.toContain("spent");
  expect(Object.values(structuredClone(store))).toEqual([true]); // `inMemory` and no more
});

test("a ledger in memory that another process has by a copy of the memory is refused there", async () => {
  const { pid } = process;
  const store = new MemoryStore();
  try {
    Object.defineProperty(process, "pid", { value: pid + 1, configurable: true });
    await expect(store.run(() => get("a"))).rejects.toMatchObject({ reason: "forked" });
  } finally {
    Object.defineProperty(process, "pid", { value: pid, configurable: true });
  }
});

test("an error of the storage is told as disk, without its message", async () => {
  const store: Store = {
    run() {
      throw new DOMException("the value was 'yes'", "QuotaExceededError");
    },
  };
  const error = await transact(store, "read", () => get("a")).catch((each) => each);
  expect(error).toBeInstanceOf(Trouble);
  expect(error).toMatchObject({
    reason: "disk",
    message: "the ledger cannot be used: QuotaExceededError",
  });
});
