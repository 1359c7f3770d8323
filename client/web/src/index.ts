/** Record answers under local differential privacy, in browsers and Node, for a Hearsay server. */

export type { Agreement } from "./agreement.js";
export type { Caps } from "./choices.js";
export { Client } from "./client.js";
export type { Coins } from "./coins.js";
export { HearsayError, InvalidInput, NotReady, PlanRefused, StorageFailed } from "./errors.js";
export type { ClientOptions } from "./options.js";
export { Person } from "./person.js";
export type { Batch, Column } from "./plans/protobuf.js";
export type { OnDrop } from "./recording/counters.js";
export type { Recorded, Spending } from "./recording/ledger.js";
export type { Outbox, Sent } from "./recording/outbox.js";
export type { Token } from "./sending/connect.js";
export type { Delivery, DeliveryState } from "./sending/sender.js";
export { IndexedDbStore } from "./storage/indexeddb.js";
export { MemoryStore } from "./storage/memory.js";
export type { Durability, Step, Store, Work } from "./storage/store.js";
export type { Reason, Status } from "./trouble.js";
