import { expect, test } from "vitest";
import { HearsayError, InvalidInput, NotReady, PlanRefused, StorageFailed } from "../src/errors.js";

test.each([InvalidInput, NotReady, PlanRefused, StorageFailed])(
  "%o has its name and is a HearsayError",
  (kind) => {
    const error = new kind("because");
    expect(error).toBeInstanceOf(HearsayError);
    expect(String(error)).toBe(`${kind.name}: because`);
  },
);
