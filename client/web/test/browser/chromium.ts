/** The browser of this machine. */

import { existsSync } from "node:fs";
import { type Browser, type BrowserContext, chromium, type Page } from "playwright-core";
import { PYTHON } from "./server.js";
import type { Site } from "./site.js";

const NAMES = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
const CHROMIUM = process.env["CHROMIUM"] ?? NAMES.find((name) => existsSync(name));

/** Why the tests in a browser cannot run; undefined where they can. */
export const MISSING =
  CHROMIUM === undefined
    ? "no Chromium: install it, or set CHROMIUM to its path"
    : PYTHON === undefined
      ? "no server: `make test` installs it into .venv, or set TEST_PYTHON"
      : undefined;

if (MISSING) console.warn(`skipped: the tests in a browser, ${MISSING}`);

export function launch(): Promise<Browser> {
  // Chromium's sandbox does not start for root, as in containers; the pages are our own.
  return chromium.launch({ executablePath: CHROMIUM!, args: ["--no-sandbox"] });
}

/** Open the site's page in a new tab. Errors of the page, other than of the network, fail the test. */
export async function open(context: BrowserContext, site: Site, path = "/"): Promise<Page> {
  const page = await context.newPage();
  page.on("pageerror", (error) => {
    throw error;
  });
  await page.goto(site.origin + path);
  await page.waitForFunction("globalThis.hearsay !== undefined");
  return page;
}
