// What the numbers of one process were in the last minutes, and how that looks as a line. Kept by this page alone.

import { isCounter } from "./numbers.js";

// Milliseconds.
const KEPT = 5 * 60_000;

// Numbers per node, and samples of each: a node that tells more is shown, but not remembered.
const MOST = { numbers: 500, samples: 300 };

// A line that has just begun does not fill its place yet.
const SHORTEST = 30_000;

export class History {
  #series = new Map();
  #last = new Map();
  #at = -Infinity;

  // Takes what a heartbeat told; answers whether it was a new one. Time is PostgreSQL's, so that a rate is right whenever it is read.
  take(heartbeat, stats) {
    const at = Date.parse(heartbeat);
    if (at === this.#at) return false;
    // After a failover to a server whose clock is behind, what was before is later than now.
    if (at < this.#at) {
      this.#series.clear();
      this.#last.clear();
    }
    this.#walk(stats, [], at);
    this.#at = at;
    return true;
  }

  // Of a counter: its growth per second.
  latest(path) {
    return this.#series.get(path)?.at(-1)?.value;
  }

  line(path, width, height) {
    return line(this.#series.get(path) ?? [], width, height);
  }

  #walk(object, path, at) {
    for (const [key, value] of Object.entries(object)) {
      const here = [...path, key];
      if (typeof value === "number") this.#keep(pathOf(here), key, value, at);
      else if (value && typeof value === "object" && !Array.isArray(value)) this.#walk(value, here, at);
    }
  }

  #keep(path, key, value, at) {
    if (isCounter(key)) {
      const before = this.#last.get(path);
      this.#last.set(path, { at, value });
      // Counters that went back belong to another beginning.
      if (!before || value < before.value) return;
      value = (value - before.value) / ((at - before.at) / 1000);
    }
    if (!this.#series.has(path)) {
      if (this.#series.size >= MOST.numbers) return;
      this.#series.set(path, []);
    }
    const samples = this.#series.get(path);
    samples.push({ at, value });
    while (samples.length > MOST.samples || samples[0].at < at - KEPT) samples.shift();
  }
}

// One name for a nested number.
export const pathOf = (keys) => keys.join("\n");

// Path data from the lower left to the upper right; empty if there is nothing to connect. Pure.
export function line(samples, width, height) {
  if (samples.length < 2) return "";
  const end = samples.at(-1).at;
  const span = Math.max(end - samples[0].at, SHORTEST);
  const values = samples.map(({ value }) => value);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const x = (at) => width - ((end - at) / span) * width;
  // What does not move lies at the bottom.
  const y = (value) => (high > low ? height - ((value - low) / (high - low)) * height : height);
  return samples.map(({ at, value }, i) => `${i ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("");
}
