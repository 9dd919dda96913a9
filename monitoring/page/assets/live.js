// Follows the stream of snapshots and detects when it stops, so that stale figures are never shown as live.

const PATIENCE_MS = 4000;
const LONGEST_MS = 60_000;
const CHECK_MS = 250;
const REOPEN_MS = 3000;

/** @import { Snapshot } from "./types.js" */
/** @typedef {"connecting" | "live" | "lost"} Connection */

/**
 * Follows the stream at `address`. Calls `onSnapshot(snapshot)` for each new snapshot, and
 * `onState("connecting" | "live" | "lost", since)` for each change, with the Date of the last snapshot. A server that repeats
 * an old snapshot counts as silent.
 */
export class Live {
  /** @type {EventSource | null} */
  #source = null;
  #openedAt = 0;
  #freshAt = 0;
  #freshDate = new Date();
  /** @type {number | null} */
  #lastAt = null;
  /** @type {number[]} */
  #gaps = [];
  /** @type {Connection} */
  #state = "connecting";

  /**
   * @param {string} address
   * @param {(snapshot: Snapshot) => void} onSnapshot
   * @param {(state: Connection, since: Date) => void} onState
   */
  constructor(address, onSnapshot, onState) {
    this.address = address;
    this.onSnapshot = onSnapshot;
    this.onState = onState;
  }

  start() {
    this.#open();
    this.#freshAt = performance.now();
    setInterval(() => this.#check(), CHECK_MS);
  }

  get state() {
    return this.#state;
  }

  #open() {
    this.#source?.close();
    this.#openedAt = performance.now();
    this.#source = new EventSource(this.address);
    this.#source.addEventListener("snapshot", (event) => this.#take(event.data));
  }

  /** @param {string} text */
  #take(text) {
    let snapshot;
    try {
      snapshot = JSON.parse(text);
    } catch {
      return; // a broken snapshot: the next one comes soon, or the check notices its absence
    }
    if (snapshot.at === this.#lastAt) return;
    const now = performance.now();
    if (this.#lastAt !== null) this.#gaps = [...this.#gaps.slice(-2), now - this.#freshAt];
    this.#lastAt = snapshot.at;
    this.#freshAt = now;
    this.#freshDate = new Date();
    this.#become("live");
    this.onSnapshot(snapshot);
  }

  /** Longest accepted silence in ms: 2.2 times the shortest recent gap, since a monitor may look rarely. */
  #patience() {
    return this.#gaps.length < 3
      ? PATIENCE_MS
      : Math.max(PATIENCE_MS, Math.min(LONGEST_MS, 2.2 * Math.min(...this.#gaps)));
  }

  #check() {
    const now = performance.now();
    if (now - this.#freshAt > this.#patience()) this.#become("lost");
    const closed = this.#source?.readyState === EventSource.CLOSED;
    const hung = this.#state === "lost" && now - this.#freshAt > 2 * this.#patience();
    if ((closed || hung) && now - this.#openedAt > REOPEN_MS) this.#open();
  }

  /** @param {Connection} state */
  #become(state) {
    if (state === this.#state) return;
    this.#state = state;
    this.onState(state, this.#freshDate);
  }
}
