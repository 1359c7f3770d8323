import "fake-indexeddb/auto";
import { afterEach, beforeEach, expect, onTestFinished, test, vi } from "vitest";
import { IndexedDbStore, MemoryStore } from "../../src/index.js";
import {
  categorical,
  Collector,
  clientOf,
  MOODS,
  NOON,
  NOWHERE,
  planOf,
  QUICK,
  readyOf,
  refuse,
  reply,
  revisionOf,
  until,
} from "../kit.js";

beforeEach(() => {
  vi.spyOn(console, "warn").mockImplementation(() => {});
  vi.spyOn(console, "error").mockImplementation(() => {});
});

afterEach(() => {
  vi.restoreAllMocks();
});

/** A time that passes, from noon of the first day of 2026. */
const began = performance.now();
const clock = (): number => NOON + performance.now() - began;

test("a batch leaves by itself soon after a record, and when it has rows or bytes enough", async () => {
  const server = await Collector.start();
  const client = await readyOf(server.url, { clock, delivery: { ...QUICK, batchAge: 150 } });
  await client.record({ mood: "good" });
  await until(() => server.batches.length === 1, 1000);
  for (const delivery of [{ batchRows: 3 }, { batchBytes: 300 }]) {
    const other = await readyOf(server.url, {
      delivery: { ...QUICK, batchAge: 60_000, ...delivery },
    });
    const before = server.batches.length;
    for (const name of ["a", "b", "c"]) {
      const person = other.person(name);
      await person.grant();
      await person.record({ mood: "good" });
    }
    const rows = (): number =>
      server.batches.slice(before).reduce((sum, { batch }) => sum + batch.rows, 0);
    await until(() => rows() === 3, 1000);
  }
});

test("the rows of a batch are in random order", async () => {
  const server = await Collector.start(planOf({ levels: { only: 60 } }));
  const store = new MemoryStore();
  const orders = new Set<string>();
  for (let run = 0; run < 6; run++) {
    const client = await readyOf(server.url, { store, epsilon: 60 });
    for (const [i, mood] of ["bad", "so-so", "good", "bad", "so-so", "good"].entries()) {
      const person = client.person(`${run} ${i}`);
      await person.grant();
      await person.record({ mood });
    }
    await client.flush();
    await client.close();
    orders.add(server.batches.at(-1)!.batch.columns[0]!.codes.join());
  }
  expect(orders.size).toBeGreaterThan(1);
});

test("every try sends the same bytes, across a reload, and it is counted once", async () => {
  const server = await Collector.start();
  const options = { store: new IndexedDbStore("same bytes"), vouched: () => true, clock };
  const first = await readyOf(server.url, options);
  server.answers = ({ method }, response) => method === "Submit" && !!response.destroy();
  await first.record({ mood: "good" });
  await until(() => server.batches.length >= 2);
  await first.close(1);
  server.answers = () => false;
  server.statuses.push(2);
  const second = await readyOf(server.url, options);
  expect(await second.flush()).toBe(true);
  const all = server.batches.map(({ bytes }) => bytes.toString("hex"));
  expect([all.length >= 3, new Set(all).size]).toEqual([true, 1]);
  expect(await second.counters()).toMatchObject({ recorded: 1, duplicate: 1 });
});

test("a refused batch is dropped and counted; one that may be taken later stays", async () => {
  const server = await Collector.start();
  const drops: unknown[] = [];
  const client = await readyOf(server.url, { onDrop: (...each) => drops.push(each) });
  server.statuses.push(4, 4, 3);
  await client.record({ mood: "good" });
  expect(await client.flush(3000)).toBe(true);
  expect(server.batches).toHaveLength(3);
  expect(new Set(server.batches.map(({ bytes }) => bytes.toString("hex"))).size).toBe(1);
  expect(drops).toEqual([["refused", 1]]);
  expect(await client.counters()).toEqual({ recorded: 1, refused: 1 });
});

test("a batch that is put off does not hold up the next", async () => {
  const server = await Collector.start();
  const client = await readyOf(server.url, { delivery: { ...QUICK, batchRows: 1 } });
  server.statuses.push(4, ...Array(20).fill(1));
  for (let i = 0; i < 12; i++) {
    const person = client.person(`p${i}`);
    await person.grant();
    await person.record({ mood: "good" });
  }
  expect(await client.flush(5000)).toBe(true);
  expect(await client.counters()).toMatchObject({ stored: 12 });
});

test.each<[string, (response: import("node:http").ServerResponse) => unknown]>([
  ["an unknown status", (r) => reply(r, [10, 2, 8, 9])],
  ["no result", (r) => reply(r, [])],
  ["two results", (r) => reply(r, [10, 2, 8, 1, 10, 2, 8, 1])],
  ["bytes that are no message", (r) => reply(r, [255, 255, 255])],
  [
    "HTML of a portal",
    (r) => r.writeHead(200, { "content-type": "text/html" }).end("<p>Log in</p>"),
  ],
  ["a redirect", (r) => r.writeHead(302, { location: "http://127.0.0.1:1/" }).end()],
  ["a status of another server", (r) => r.writeHead(500).end("oops")],
  [
    "an error that is no JSON",
    (r) => r.writeHead(503, { "content-type": "application/json" }).end("{"),
  ],
  [
    "an error of another form",
    (r) => r.writeHead(503, { "content-type": "application/json" }).end('[{"a":1}]'),
  ],
  ["an argument that it does not like", (r) => refuse(r, 400, "invalid_argument", "no")],
  [
    "a cut-off body",
    (r) =>
      r.writeHead(200, { "content-type": "application/proto", "content-length": 100 }).write("x") &&
      r.destroy(),
  ],
])("a server that answers with %s neither throws nor ends a batch", async (_, answer) => {
  const server = await Collector.start();
  const client = await readyOf(server.url);
  let wrong = 2;
  server.answers = ({ method }, response) =>
    method === "Submit" && wrong-- > 0 && (answer(response), true);
  await client.record({ mood: "good" });
  expect(await client.flush(5000)).toBe(true);
  expect(server.batches).toHaveLength(3);
  expect(new Set(server.batches.map(({ bytes }) => bytes.toString("hex"))).size).toBe(1);
  expect(await client.counters()).toEqual({ recorded: 1, stored: 1 });
});

test("an answer that never ends is given up, by its size or its time", async () => {
  const server = await Collector.start();
  const client = clientOf(server.url, { delivery: { ...QUICK, timeout: 300 } });
  let chunks = 0;
  server.answers = (_, response) => {
    response.writeHead(200, { "content-type": "application/proto" });
    const drip = setInterval(() => response.write(Buffer.alloc(1 << 20)) || chunks++, 5);
    response.on("close", () => clearInterval(drip));
    return true;
  };
  await until(async () =>
    /more than 5242880 bytes|did not answer in time/.test((await client.status()).transport),
  );
  expect(chunks).toBeLessThan(40);
  server.answers = (_, response) =>
    !!response.writeHead(200, { "content-type": "application/proto" }).write("x");
  await until(async () => /did not answer in time/.test((await client.status()).transport));
});

test("no try comes before the server asked for it, and a flush keeps to that", async () => {
  const server = await Collector.start();
  const client = await readyOf(server.url, { clock });
  let busy = true;
  server.answers = ({ method }, response) => {
    if (method !== "Submit" || !busy) return false;
    refuse(response, 429, "resource_exhausted", "too many wait", { "retry-after-ms": "700" });
    busy = false;
    return true;
  };
  await client.record({ mood: "good" });
  await until(() => server.of("Submit").length === 1);
  await until(async () => (await client.delivery()).lastError !== "");
  const asked = performance.now();
  expect(await client.flush(300)).toBe(false);
  expect(performance.now() - asked).toBeLessThan(250); // it does not wait for what cannot be
  expect((await client.delivery()).lastError).toMatch("too many wait (resource_exhausted)");
  expect(await client.flush(3000)).toBe(true);
  const [first, second] = server.of("Submit");
  expect(second!.at - first!.at).toBeGreaterThan(690);
});

test("tries are further and further apart while the server is away", async () => {
  const server = await Collector.start();
  const client = await readyOf(server.url, {
    clock,
    delivery: { ...QUICK, firstWait: 40, longestWait: 5000 },
  });
  server.answers = ({ method }, response) => method === "Submit" && !!response.destroy();
  await client.record({ mood: "good" });
  await until(() => server.of("Submit").length >= 5);
  const at = server.of("Submit").map((call) => call.at);
  for (const [i, least] of [20, 40, 80, 160].entries())
    expect(at[i + 1]! - at[i]!).toBeGreaterThan(least - 2);
});

test("the token and the protocol are in every call, and nothing else that tells who calls", async () => {
  const server = await Collector.start();
  let asked = 0;
  const client = await readyOf(server.url, { token: () => `token ${++asked}` });
  await client.record({ mood: "good" });
  await client.flush();
  expect(server.calls.map(({ headers }) => headers.authorization)).toEqual([
    "Bearer token 1",
    "Bearer token 2",
  ]);
  for (const { headers } of server.calls) {
    expect(headers["content-type"]).toBe("application/proto");
    expect(headers["connect-protocol-version"]).toBe("1");
    expect([headers.cookie, headers.referer]).toEqual([undefined, undefined]);
  }
});

test.each<[string, string | (() => string), RegExp]>([
  [
    "throws",
    () => {
      throw new Error("s3cret");
    },
    /no token could be had: Error/,
  ],
  ["is no text", () => 1 as never, /not printable ASCII/],
  ["has a line break", "a\r\nx-evil: 1", /not printable ASCII/],
  ["has an accent", "evil\u00e9", /not printable ASCII/],
  ["is white space", " \n", /not printable ASCII, or empty/],
  ["is empty", "", /not printable ASCII, or empty/],
])("a token that %s is told, and not repeated", async (_, token, message) => {
  const server = await Collector.start();
  const client = clientOf(server.url, { token });
  await until(async () => (await client.status()).reason === "bad_token");
  const { detail } = await client.status();
  expect(detail).toMatch(message);
  expect(detail).not.toMatch(/s3cret|evil/);
  expect(server.calls).toEqual([]);
});

test.each(["abc\n", "\ufeffabc\r\n", " \tabc\u3000"])(
  "white space around a token is taken off",
  async (token) => {
    const server = await Collector.start();
    const client = await readyOf(server.url, { token });
    await readyOf(server.url, { token: () => token });
    expect(server.calls.map(({ headers }) => headers.authorization)).toEqual([
      "Bearer abc",
      "Bearer abc",
    ]);
    expect((await client.status()).ready).toBe(true);
  },
);

test("a token that cannot be one takes nothing, though the app ships the plan", async () => {
  const data = planOf();
  const agreement = {
    survey: "daily",
    revision: revisionOf(data),
    period: "P1D",
    domains: { mood: MOODS, walked: [0, 20] as const },
    levels: { strict: 1, loose: 4 },
    defaultLevel: "strict",
    plan: Buffer.from(data).toString("base64"),
  };
  for (const options of [{ token: "abc\u0001" }, { token: "\u00e9" }]) {
    const client = clientOf(NOWHERE, { agreement, ...options });
    expect((await client.status()).reason).toBe("bad_token");
    expect((await client.record({ mood: "good" })).dropped).toEqual({ mood: "bad_token" });
  }
});

test("the status tells why the server is not reached", async () => {
  const server = await Collector.start();
  const reasons: [number, string, string, string?][] = [
    [401, "unauthenticated", "bad_token"],
    [403, "permission_denied", "bad_token", "because\nof this token"],
    [403, "permission_denied", "server_refused"], // a proxy's: our servers name the token
    [404, "not_found", "server_refused"],
    [503, "unavailable", "unreachable"],
    [429, "resource_exhausted", "server_refused"],
  ];
  for (const [status, code, reason, words = "because\nof this"] of reasons) {
    server.answers = (_, response) => {
      refuse(response, status, code, words);
      return true;
    };
    const client = clientOf(server.url);
    await until(async () => (await client.status()).reason === reason);
    expect((await client.status()).detail).toMatch("because of this");
  }
  const nameless = clientOf("https://nowhere.invalid");
  await until(async () => !["no_plan", "ready"].includes((await nameless.status()).reason));
  expect(["name_not_found", "unreachable"]).toContain((await nameless.status()).reason);
  const { port } = new URL(server.url);
  const secure = clientOf(`https://127.0.0.1:${port}`);
  await until(async () => (await secure.status()).reason === "tls");
});

test("a survey that comes later is found without a reload, and a strict client is told of a missing one", async () => {
  const server = await Collector.start();
  const { plan } = server;
  server.plan = undefined;
  const strict = clientOf(server.url, { strict: true });
  await expect(
    (async () => {
      for (;;) await strict.waitReady(100);
    })(),
  ).rejects.toThrow("there is no such survey");
  const client = clientOf(server.url, { clock });
  expect(await client.waitReady(200)).toBe(false);
  server.plan = plan;
  await until(async () => (await client.status()).ready);
});

test("what the queue does not hold is dropped, oldest first, and its id is kept to be forgotten", async () => {
  const server = await Collector.start();
  const client = await readyOf(server.url, { delivery: { ...QUICK, batchRows: 2, maxReports: 5 } });
  server.answers = ({ method }, response) => method === "Submit" && !!response.destroy();
  const people = Array.from({ length: 9 }, (_, i) => client.person(`p${i}`));
  for (const person of people) {
    await person.grant();
    await person.record({ mood: "good" });
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  const { reports, batches, sent } = await client.outbox();
  const left = reports.length + batches.reduce((rows, { rows: more }) => rows + more, 0);
  const counters = await client.counters();
  expect([left <= 5, left + counters.overflow!]).toEqual([true, 9]);
  expect(sent.map(({ became }) => became)).toContain("overflow");
  await people[8]!.revoke({ forget: true });
  await until(() => server.of("Forget").length === 1);
  const gone = sent.map(({ batch }) => Buffer.from(batch.id).toString("hex"));
  expect(server.forgotten).toEqual(expect.arrayContaining(gone));
});

test.each([
  ["another person", "bob"],
  ["the same person later", "ann"],
])("a batch that a revocation dropped is forgotten when %s asks for it", async (_, asks) => {
  const server = await Collector.start();
  const client = await readyOf(server.url, { delivery: { ...QUICK, firstWait: 60_000 } });
  server.answers = ({ method }, response) => method === "Submit" && !!response.destroy();
  const people = new Map(["ann", "bob"].map((name) => [name, client.person(name)]));
  for (const person of people.values()) await person.grant();
  for (const person of people.values()) await person.record({ mood: "good" });
  await client.flush(500);
  await until(async () => (await client.delivery()).lastError !== "");
  const ids = server.batches.map(({ batch }) => Buffer.from(batch.id).toString("hex"));
  expect(new Set(ids).size).toBe(1); // the server may have it
  await people.get("ann")!.revoke();
  expect(server.of("Forget")).toEqual([]);
  await people.get(asks)!.revoke({ forget: true });
  server.answers = () => false;
  client["device"].sender.online();
  await until(() => server.of("Forget").length > 0);
  expect(server.forgotten).toEqual([ids[0]]);
});

test("a server that refuses to forget is asked again, and holds up no answer", async () => {
  const server = await Collector.start();
  const client = await readyOf(server.url, { clock });
  const ann = client.person("ann");
  await ann.grant();
  server.answers = ({ method }, response) => method === "Submit" && !!response.destroy();
  await ann.record({ mood: "good" });
  await until(() => server.of("Submit").length > 0);
  let refusals = 3;
  server.answers = ({ method }, response) => {
    if (method !== "Forget" || refusals-- <= 0) return false;
    refuse(response, 503, "unavailable", "later");
    return true;
  };
  await ann.revoke({ forget: true });
  expect((await client.record({ mood: "good" })).taken).toEqual(["mood"]);
  await until(async () => (await client.counters()).stored === 1);
  await until(() => server.of("Forget").length === 4);
  const ids = server.forgotten;
  expect(new Set(ids).size).toBe(1);
});

test("a device that is offline asks nobody, and goes on by itself when it is online again", async () => {
  const server = await Collector.start();
  onTestFinished(() => {
    vi.unstubAllGlobals(); // after the client is closed
  });
  const target = new EventTarget();
  const navigator = { onLine: true };
  vi.stubGlobal("navigator", navigator);
  vi.stubGlobal("addEventListener", target.addEventListener.bind(target));
  vi.stubGlobal("removeEventListener", target.removeEventListener.bind(target));
  const client = await readyOf(server.url, { clock });
  navigator.onLine = false;
  await client.record({ mood: "good" });
  expect(await client.flush(300)).toBe(false);
  expect(server.batches).toEqual([]);
  expect((await client.delivery()).lastError).toBe("this device is offline");
  expect((await client.delivery()).oldest).toBeGreaterThanOrEqual(0);
  navigator.onLine = true;
  target.dispatchEvent(new Event("online"));
  await until(() => server.batches.length === 1, 1000);
  await until(async () => (await client.delivery()).lastError === "");
});

test("a report that is too large to outlive the page goes all the same", async () => {
  const k = 62_000;
  const values = Array.from({ length: k }, (_, i) => String(i));
  const she = {
    name: "she",
    epsilon: 2.2,
    parameters: [
      { name: "k", values: [BigInt(k)] },
      { name: "weights", values: [3n << 62n, 1n << 62n] },
    ],
  };
  const plan = planOf({
    attributes: [categorical("page", values)],
    levels: { only: 2.2 },
    mechanisms: () => [she],
  });
  const server = await Collector.start(plan);
  const client = clientOf(server.url);
  await client.waitReady(15_000);
  expect((await client.record({ page: "7" })).taken).toEqual(["page"]);
  expect(await client.flush()).toBe(true);
  expect(server.batches[0]!.batch.columns[0]!.codes).toHaveLength(k);
}, 20_000);

test("a row that another process revokes while its batch waits in memory is not sent", async () => {
  const server = await Collector.start();
  const store = new MemoryStore();
  const delivery = { ...QUICK, batchAge: 60_000, batchRows: 2 };
  const client = await readyOf(server.url, { store, delivery });
  const other = await readyOf(NOWHERE, { store, delivery });
  const people = ["cid", "dan", "ann", "bob"].map((name) => client.person(name));
  for (const each of people) await each.grant();
  let release!: () => void;
  const held = new Promise<void>((resolve) => (release = resolve));
  server.answers = async ({ method }) => {
    if (method === "Submit") await held;
    return false;
  };
  for (const each of people) await each.record({ mood: "good" });
  const sent = client.flush(5000);
  await until(() => server.batches.length === 1); // the second batch waits for the first one's answer
  expect((await client.outbox()).batches.map(({ rows }) => rows)).toEqual([2, 2]);
  await other.person("bob").revoke();
  release();
  expect(await sent).toBe(true);
  expect(server.batches.map(({ batch }) => batch.rows)).toEqual([2, 1]);
  expect((await client.outbox()).sent.map(({ batch }) => batch.rows)).toEqual([2, 1]);
});
