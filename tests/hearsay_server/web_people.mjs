// People who answer by the TypeScript SDK in this process; told what to do by lines of JSON.
//
//     node web_people.mjs SDK URL

import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [sdk, url] = process.argv.slice(2);
const { Client, MemoryStore } = await import(pathToFileURL(sdk));
console.warn = console.error; // the answers alone go to stdout

const client = new Client({
  url,
  survey: "four",
  epsilon: 16,
  level: "open",
  mayReveal: { affair: ["no"] },
  store: new MemoryStore(),
  consent: true,
  strict: true,
  delivery: { firstWait: 50, longestWait: 300, batchRows: 64 },
});

const answers = (i) => ({
  mood: ["bad", "so-so", "good", "good"][i % 4],
  page: `p${i % 3}`,
  walked: i % 21,
  affair: i % 5 ? "no" : "yes",
});

const DO = {
  ready: ({ timeout }) => client.waitReady(timeout),
  async record({ from, to }) {
    let taken = 0;
    for (let i = from; i < to; i++) {
      const person = client.person(`person ${i}`);
      await person.grant();
      taken += (await person.record(answers(i))).taken.length;
      if ((await person.record(answers(i + 1))).taken.length) throw new Error("a person was taken twice");
    }
    return taken;
  },
  flush: ({ timeout }) => client.flush(timeout),
  counters: () => client.counters(),
  status: () => client.status(),
  waiting: async () => {
    const { reports, batches } = await client.outbox();
    return reports.length + batches.reduce((rows, batch) => rows + batch.rows, 0);
  },
  close: ({ timeout }) => client.close(timeout),
};

for await (const line of createInterface({ input: process.stdin })) {
  const { do: what, ...how } = JSON.parse(line);
  process.stdout.write(`${JSON.stringify(await DO[what](how))}\n`);
}
