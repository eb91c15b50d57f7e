// The list as it comes from the node, and what is known about it while it does not.

// Milliseconds. The node says something every second.
const SILENCE = 5000;
const AGAIN = 2000;
const GIVEN_UP = 15_000;

export class Live {
  #source;
  #events;
  #again;
  #began = 0;
  #heard = 0;
  #listAt;

  // Given `list(list)`, `trouble(reason, age)` with the last list's age in milliseconds, if there is one, and `refused()`.
  constructor(events) {
    this.#events = events;
    setInterval(() => this.#watch(), 1000);
  }

  start() {
    this.#heard = performance.now();
    this.#listAt = undefined;
    this.#connect();
  }

  stop() {
    clearTimeout(this.#again);
    this.#source?.close();
    this.#source = undefined;
  }

  #connect() {
    this.stop();
    this.#began = performance.now();
    this.#source = new EventSource("/admin/stream");
    this.#on("cluster", (list) => {
      this.#listAt = performance.now();
      this.#events.list(list);
    });
    this.#on("failure", ({ detail, list_age_ms: age }) => {
      if (age !== null) this.#listAt = performance.now() - age;
      this.#trouble(detail);
    });
    this.#source.addEventListener("expired", () => this.#ended());
    this.#source.addEventListener("error", () => {
      this.#trouble("this node does not answer; trying again");
      // A browser tries again by itself, unless it was answered with something else than a stream.
      if (this.#source.readyState === EventSource.CLOSED) this.#ended();
    });
  }

  #on(kind, take) {
    this.#source.addEventListener(kind, ({ data }) => {
      this.#heard = performance.now();
      take(JSON.parse(data));
    });
  }

  // Signed out, or the node could not: whoever is asked knows.
  async #ended() {
    this.stop();
    if (await this.#events.refused()) return;
    this.#again = setTimeout(() => this.#connect(), AGAIN);
  }

  #watch() {
    if (!this.#source) return;
    const now = performance.now();
    if (now - this.#heard < SILENCE) return;
    this.#trouble("nothing is heard from this node");
    // A connection that leads nowhere does not say so.
    if (now - this.#began > GIVEN_UP) this.#connect();
  }

  #trouble(reason) {
    this.#events.trouble(reason, this.#listAt === undefined ? undefined : performance.now() - this.#listAt);
  }
}
