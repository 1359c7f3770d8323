/** What a page tells: that it may be going away, that it is online again, that another tab revoked. */

/** The events that a client of a page listens to. */
export interface Heard {
  /** The page is hidden or goes away. */
  leave(): void;
  /** The device is online again. */
  online(): void;
  /** Another tab changed the queue. */
  changed(): void;
}

/** Whether this is a page, which may go away at any time, rather than a worker or Node. */
export function isPage(): boolean {
  return typeof document !== "undefined" && typeof addEventListener === "function";
}

/** Listen to a page's events; return how to tell other tabs of a change, and how to stop. */
export function listen(name: string, heard: Heard): { tell(): void; stop(): void } {
  if (typeof addEventListener !== "function") return { tell() {}, stop() {} };
  const hidden = (): void => {
    if (document.visibilityState === "hidden") heard.leave();
  };
  const leave = (): void => heard.leave();
  const online = (): void => heard.online();
  // Nothing is sent on the channel but that something changed.
  const channel =
    isPage() && typeof BroadcastChannel === "function" ? new BroadcastChannel(name) : undefined;
  if (channel) channel.onmessage = () => heard.changed();
  addEventListener("online", online);
  if (isPage()) {
    addEventListener("pagehide", leave);
    document.addEventListener("visibilitychange", hidden);
  }
  return {
    tell: () => channel?.postMessage(0),
    stop() {
      channel?.close();
      removeEventListener("online", online);
      if (isPage()) {
        removeEventListener("pagehide", leave);
        document.removeEventListener("visibilitychange", hidden);
      }
    },
  };
}
