import { expect, test } from "vitest";
import { listed } from "./headers.js";
import { Collector, readyOf, until } from "./kit.js";

test("from Node a call has the headers that the page lists, and none that tells of the machine", async () => {
  const server = await Collector.start();
  const client = await readyOf(server.url, { token: "secret" });
  await client.record({ mood: "bad" });
  await client.flush();
  await until(() => server.of("Submit").length > 0);
  for (const { headers } of server.calls) {
    expect(Object.keys(headers).sort()).toEqual(listed("TypeScript SDK in Node"));
    const told = { "user-agent": "hearsay", "accept-language": "*" };
    expect(headers).toMatchObject(told);
    expect(JSON.stringify(headers)).not.toContain(process.versions.node);
  }
});
