import { afterAll, afterEach, beforeEach, expect, test, vi } from "vitest";
import { MemoryStore, type Store } from "../../src/index.js";
import { clientOf, Collector, NOON, planOf, QUICK, readyOf, refuse, until } from "../kit.js";

// These hold what the client does in the events. That a browser then sends is shown in Chromium.

const { fetch } = globalThis;
const page = new EventTarget();
let visibility = "visible";
const fetched: { init: RequestInit; url: string }[] = [];

beforeEach(() => {
  vi.spyOn(console, "warn").mockImplementation(() => {});
  visibility = "visible";
  const document = new EventTarget();
  Object.defineProperty(document, "visibilityState", { get: () => visibility });
  vi.stubGlobal("document", document);
  vi.stubGlobal("addEventListener", page.addEventListener.bind(page));
  vi.stubGlobal("removeEventListener", page.removeEventListener.bind(page));
  fetched.length = 0;
  vi.stubGlobal("fetch", (url: string, init: RequestInit) => {
    fetched.push({ url, init });
    return fetch(url, init);
  });
});

const { BroadcastChannel } = globalThis;

afterEach(() => {
  vi.restoreAllMocks();
  vi.stubGlobal("BroadcastChannel", BroadcastChannel);
});

afterAll(() => {
  vi.unstubAllGlobals(); // clients are closed after each test, with the events of the page
});

const began = performance.now();
const clock = (): number => NOON + performance.now() - began;

const hide = (): void => {
  visibility = "hidden";
  document.dispatchEvent(new Event("visibilitychange"));
};

test("what was sealed leaves in the event itself, in one call that outlives the page", async () => {
  const server = await Collector.start();
  const client = await readyOf(server.url, { clock, delivery: { ...QUICK, firstWait: 60_000 } });
  server.answers = ({ method }, response) => method === "Submit" && !!response.destroy();
  await client.record({ mood: "good" });
  await until(
    async () => (await client.outbox()).batches.length === 1 && server.of("Submit").length === 1,
  );
  await until(async () => (await client.delivery()).lastError !== "");
  server.answers = () => false;
  const before = fetched.length;
  hide();
  // Nothing was awaited: this is still the same task.
  expect(fetched).toHaveLength(before + 1);
  expect(fetched.at(-1)!.init.keepalive).toBe(true);
  page.dispatchEvent(new Event("pagehide"));
  expect(fetched).toHaveLength(before + 1); // it is under way
  // The page stayed, so the answer is taken.
  await until(async () => (await client.counters()).stored === 1);
  const [first, second] = server.batches;
  expect(second!.bytes).toEqual(first!.bytes);
  expect((await client.outbox()).batches).toEqual([]);
});

test("every call omits cookies, caches, redirects and the page's address", async () => {
  const server = await Collector.start();
  const client = await readyOf(server.url, { clock, token: "secret" });
  server.answers = ({ method }, response) => method === "Submit" && !!response.destroy();
  await client.record({ mood: "good" });
  await until(() => server.of("Submit").length > 0);
  await client.revoke({ forget: true });
  await until(() => server.of("Forget").length === 1);
  expect(new Set(fetched.map(({ url }) => url.split("/").at(-1)))).toEqual(
    new Set(["GetPlan", "Submit", "Forget"]),
  );
  for (const { init } of fetched) {
    const { headers, body, signal, keepalive, ...others } = init;
    expect(others).toEqual({
      method: "POST",
      credentials: "omit",
      cache: "no-store",
      redirect: "error",
      referrerPolicy: "no-referrer",
    });
    expect(Object.keys(headers as object).sort()).toEqual([
      "accept-language",
      "authorization",
      "connect-protocol-version",
      "content-type",
      "user-agent",
    ]);
    expect([keepalive, typeof (body as Uint8Array).length]).toEqual([true, "number"]);
    expect(signal).toBeInstanceOf(AbortSignal);
  }
});

test("what was not sealed does not leave in the event, and nothing leaves after a revocation", async () => {
  const server = await Collector.start();
  const slow = { ...QUICK, batchAge: 60_000, firstWait: 60_000 };
  const client = await readyOf(server.url, { clock, delivery: slow });
  await client.record({ mood: "good" });
  const before = fetched.length;
  hide();
  expect(fetched).toHaveLength(before);
  const other = await readyOf(server.url, { clock, delivery: { ...slow, batchAge: 10 } });
  server.answers = ({ method }, response) => method === "Submit" && !!response.destroy();
  await other.record({ mood: "good" });
  await until(() => server.of("Submit").length === 1);
  await until(async () => (await other.delivery()).lastError !== "");
  const revoked = other.revoke();
  const calls = fetched.length;
  page.dispatchEvent(new Event("pagehide"));
  await revoked;
  page.dispatchEvent(new Event("pagehide"));
  expect(fetched).toHaveLength(calls);
});

test("no more than 60 KiB leave in the events, whatever waits", async () => {
  const values = Array.from({ length: 1 << 16 }, (_, i) => String(i)); // a code has 8 KiB
  const one = 2n ** 64n;
  const { categorical } = await import("../kit.js");
  const unary = {
    name: "unary",
    epsilon: 2,
    parameters: [
      { name: "k", values: [1n << 16n] },
      { name: "other", values: [one / 4n] },
      { name: "own", values: [one / 2n] },
    ],
  };
  const server = await Collector.start(
    planOf({
      attributes: [categorical("page", values)],
      levels: { only: 2 },
      mechanisms: () => [unary],
    }),
  );
  const client = await readyOf(server.url, {
    delivery: { ...QUICK, batchBytes: 20_000, firstWait: 60_000 },
  });
  server.answers = ({ method }, response) => method === "Submit" && !!response.destroy();
  for (let i = 0; i < 12; i++) {
    const person = client.person(`p${i}`);
    await person.grant();
    await person.record({ page: "1" });
  }
  void client.flush(100);
  await until(async () => (await client.outbox()).batches.length >= 5);
  await until(async () => (await client.delivery()).lastError !== "");
  const before = fetched.length;
  hide();
  page.dispatchEvent(new Event("pagehide"));
  const bodies = fetched.slice(before).map(({ init }) => (init.body as Uint8Array).length);
  expect(bodies.length).toBeGreaterThan(0);
  const all = bodies.reduce((a, b) => a + b);
  expect(all).toBeLessThanOrEqual(60 << 10);
  expect(all).toBeGreaterThan(30 << 10); // more than one: a call that is still under way has its part of the room
});

/** Let a call of Submit begin, fail, and its batch wait in the memory of a page. */
async function waiting(server: Collector, store: Store, delivery = {}) {
  const slow = { ...QUICK, firstWait: 60_000, longestWait: 60_000, ...delivery };
  const client = await readyOf(server.url, { clock, store, delivery: slow });
  server.answers = ({ method }, response) => method === "Submit" && !!response.destroy();
  await client.record({ mood: "good" });
  await until(async () => (await client.delivery()).lastError !== "");
  return client;
}

const soon = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 50));

test("nothing leaves after a revocation that a full disk delayed", async () => {
  const server = await Collector.start();
  const base = new MemoryStore();
  let full = false;
  let reads = 0;
  const store: Store = {
    inMemory: true,
    run: (work, durability) => {
      if (durability === "read") reads++;
      return full && durability !== "read"
        ? Promise.reject(new DOMException("", "QuotaExceededError"))
        : base.run(work);
    },
  };
  const client = await waiting(server, store, { firstWait: 20, longestWait: 50 });
  full = true;
  await client.revoke();
  reads = 0;
  await until(() => reads > 10); // the sender looks again and again
  full = false;
  await until(async () => !(await client.outbox()).batches.length);
  await soon();
  const calls = fetched.length;
  hide();
  expect(fetched).toHaveLength(calls);
});

test.each([true, false])(
  "nothing leaves a page after a worker revoked, whether it is told (%s) or asks for the status",
  async (isTold) => {
    if (!isTold) vi.stubGlobal("BroadcastChannel", undefined);
    const server = await Collector.start();
    const store = new MemoryStore();
    const client = await waiting(server, store);
    const { document } = globalThis;
    vi.stubGlobal("document", undefined);
    const worker = clientOf(server.url, { clock, store, consent: false });
    vi.stubGlobal("document", document);
    await worker.revoke({ forget: true });
    if (isTold) await soon();
    else expect((await client.status()).reason).toBe("no_consent");
    const calls = fetched.length;
    hide();
    expect(fetched).toHaveLength(calls);
    expect((await client.outbox()).batches).toEqual([]);
  },
);

test.each([
  ["as the page works", false],
  ["as it was left before", true],
])("a page that is left keeps to the delay that the server asked for %s", async (_, asLeft) => {
  const server = await Collector.start();
  const later: typeof server.answers = ({ method }, response) => {
    if (method !== "Submit") return false;
    refuse(response, 429, "resource_exhausted", "later", { "retry-after-ms": "3600000" });
    return true;
  };
  const gone: typeof server.answers = ({ method }, response) =>
    method === "Submit" && !!response.destroy();
  const client = await readyOf(server.url, { clock, delivery: { ...QUICK, firstWait: 60_000 } });
  server.answers = asLeft ? gone : later;
  await client.record({ mood: "good" });
  await until(async () => (await client.delivery()).lastError !== "");
  if (asLeft) {
    server.answers = later;
    hide();
    await until(async () => /later/.test((await client.delivery()).lastError));
  }
  expect((await client.delivery()).lastError).toMatch(/later/);
  const calls = fetched.length;
  for (let i = 0; i < 5; i++) {
    hide();
    await soon();
  }
  expect(fetched).toHaveLength(calls);
  expect((await client.outbox()).batches).toHaveLength(1);
});

test("a closed client hears no events", async () => {
  const server = await Collector.start();
  const remove = vi.fn(globalThis.removeEventListener);
  vi.stubGlobal("removeEventListener", remove);
  const client = await readyOf(server.url, { clock });
  await client.close(1);
  expect(remove.mock.calls.map(([name]) => name).sort()).toEqual(["online", "pagehide"]);
});
