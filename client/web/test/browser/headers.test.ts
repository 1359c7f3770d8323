import { createServer, type IncomingHttpHeaders } from "node:http";
import type { AddressInfo } from "node:net";
import { describe, expect, onTestFinished, test } from "vitest";
import { listed } from "../headers.js";
import { MISSING } from "./chromium.js";
import { world } from "./fixture.js";

describe.skipIf(MISSING)("the headers of a page's calls", () => {
  const w = world();

  test("are those that the page on the wire lists", async () => {
    const seen: IncomingHttpHeaders[] = [];
    const server = createServer((asked, answer) => {
      if (asked.method === "POST") seen.push(asked.headers);
      answer.setHeader("access-control-allow-origin", w.site.origin);
      const names = "authorization, content-type, connect-protocol-version";
      answer.setHeader("access-control-allow-headers", names);
      answer.writeHead(asked.method === "POST" ? 503 : 204).end();
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    onTestFinished(() => void server.close());
    const profile = await w.browser.newContext({ locale: "de-CH" });
    const page = await w.page(profile);
    await page.evaluate(
      (url) => {
        const options = {
          url,
          survey: "daily",
          level: "strict",
          epsilon: 4,
          token: "secret",
          consent: true,
        };
        const made = new hearsay.Client({ ...options, vouched: () => true });
        return made.waitReady(2000);
      },
      `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    );
    await profile.close();
    expect(seen.length).toBeGreaterThan(0);
    for (const headers of seen) {
      expect(Object.keys(headers).sort()).toEqual(listed("TypeScript SDK in a browser"));
      expect(headers["accept-language"]).toBe("*");
    }
  });
});
