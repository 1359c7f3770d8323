/** The events of a page and of its other tabs and workers. */

/** The events that a client of a page listens to. */
export interface Heard {
  /** The page is hidden or goes away. */
  leave(): void;
  /** The device is online again. */
  online(): void;
  /** Another tab or worker dropped batches from the queue. */
  changed(): void;
}

/** Whether this is a page, which may go away at any time, rather than a worker or Node. */
export function isPage(): boolean {
  return typeof document !== "undefined" && typeof addEventListener === "function";
}

/** Listen to the events; return how to tell other tabs and workers of a change, and how to stop. */
export function listen(name: string, heard: Heard): { tell(): void; stop(): void } {
  const hidden = (): void => {
    if (document.visibilityState === "hidden") heard.leave();
  };
  const leave = (): void => heard.leave();
  const online = (): void => heard.online();
  // Nothing is sent on the channel but that something changed.
  let channel = typeof BroadcastChannel === "function" ? new BroadcastChannel(name) : undefined;
  if (channel) {
    channel.onmessage = () => heard.changed();
    (channel as { unref?: () => void }).unref?.(); // a process in Node may end meanwhile
  }
  const hasEvents = typeof addEventListener === "function";
  if (hasEvents) addEventListener("online", online);
  if (isPage()) {
    addEventListener("pagehide", leave);
    document.addEventListener("visibilitychange", hidden);
  }
  return {
    tell: () => channel?.postMessage(0),
    stop() {
      channel?.close();
      channel = undefined; // it throws where a revocation is noted later
      if (hasEvents) removeEventListener("online", online);
      if (isPage()) {
        removeEventListener("pagehide", leave);
        document.removeEventListener("visibilitychange", hidden);
      }
    },
  };
}
