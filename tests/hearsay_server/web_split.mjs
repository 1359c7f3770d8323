// People whose records the TypeScript SDK splits between two servers, in this process.
//
//     node web_split.mjs SDK LEADER HELPER_KEY SURVEY NOW COUNT

import { pathToFileURL } from "node:url";

const [sdk, url, helperKey, survey, now, count] = process.argv.slice(2);
const { Client, MemoryStore } = await import(pathToFileURL(sdk));
console.warn = console.error; // the answers alone go to stdout

const given = {
  url,
  survey,
  epsilon: 1,
  clock: () => Number(now),
  vouched: () => true,
  consent: true,
};
const client = new Client({ ...given, helperKey, store: new MemoryStore() });
const without = new Client({ ...given, store: new MemoryStore() });
const ready = await client.waitReady(20_000);
await without.waitReady(5000);
for (let i = 0; i < Number(count); i++) {
  const person = client.person(`person ${i}`);
  await person.grant();
  await person.record({ way: i % 3 ? "bus" : "train", minutes: 30 });
}
const sent = await client.flush(120_000);
const outbox = await client.outbox();
process.stdout.write(
  JSON.stringify({
    ready,
    sent,
    counters: await client.counters(),
    ids: outbox.sent.map(({ batch }) => Buffer.from(batch.id).toString("hex")),
    refused: (await without.status()).detail,
  }),
);
await client.close();
await without.close();
