// People whose records are sealed by the TypeScript SDK in this process.
//
//     node web_sealed.mjs SDK COLLECTOR SHUFFLER TOKEN SURVEY NOW COUNT

import { pathToFileURL } from "node:url";

const [sdk, url, shuffler, token, survey, now, count] = process.argv.slice(2);
const { Client, MemoryStore } = await import(pathToFileURL(sdk));
console.warn = console.error; // the answers alone go to stdout

const given = {
  url,
  survey,
  epsilon: 64,
  level: "strict",
  clock: () => Number(now),
  vouched: () => true,
  consent: true,
};
const client = new Client({
  ...given,
  shuffler,
  shufflerToken: token,
  store: new MemoryStore(),
  delivery: { firstWait: 50, longestWait: 300 },
});
const without = new Client({ ...given, store: new MemoryStore() });
const ready = await client.waitReady(20_000);
await without.waitReady(5000);
const begin = performance.now();
for (let i = 0; i < Number(count); i++) {
  const person = client.person(`person ${i}`);
  await person.grant();
  await person.record({ smokes: i % 4 ? "no" : "yes", age: 40 });
}
const sent = await client.flush(120_000);
const outbox = await client.outbox();
process.stdout.write(
  JSON.stringify({
    ready,
    sent,
    seconds: (performance.now() - begin) / 1000,
    counters: await client.counters(),
    batches: outbox.sent.map(({ batch }) => batch.rows),
    refused: (await without.status()).detail,
  }),
);
await client.close();
await without.close();
