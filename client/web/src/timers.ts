/** Timers whose delay may be as long as a number can be. */

export type Timer = ReturnType<typeof setTimeout>;

/** The longest delay of a timer: platforms take a longer one, such as Infinity, for none. */
const LONGEST = 2 ** 31 - 1;

/** Do `work` after `delay` milliseconds. */
export function after(delay: number, work: () => void): Timer {
  return setTimeout(work, Math.min(delay, LONGEST));
}
