import { defineConfig } from "vitest/config";

/** What starts a server or a browser: `make test-all` runs it, `make test` does not. */
const SLOW = ["test/browser/**/*.test.ts", "test/**/*.slow.test.ts"];

export default defineConfig({
  test: {
    projects: [
      { test: { name: "quick", include: ["test/**/*.test.ts"], exclude: SLOW } },
      {
        test: {
          name: "slow",
          include: SLOW,
          testTimeout: 400_000,
          hookTimeout: 120_000,
          // One browser and one server at a time: each is measured, and both have two cores.
          fileParallelism: false,
        },
      },
    ],
  },
});
