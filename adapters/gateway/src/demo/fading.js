// What others did last and that soon is over: typing, pointing. Pure: the time comes in as an argument.
//
// Invariant: whatever gets lost, nothing is shown for longer than its time to live; and what was overtaken by a newer word of the same
// person, or comes after they left, is never shown.

export class Fading {
  #ttl;
  #latest = new Map();

  constructor(ttl) {
    this.#ttl = ttl;
  }

  // `count` grows with everything that a person does; `value` is null if it is over.
  put(person, count, value, now) {
    const latest = this.#latest.get(person);
    if (!Number.isSafeInteger(count) || (latest && count <= latest.count)) return;
    this.#latest.set(person, { count, value, until: now + this.#ttl });
  }

  // The people and values that are to be shown.
  live(now) {
    return [...this.#latest]
      .filter(([, { value, until }]) => value !== null && now < until)
      .map(([person, { value }]) => [person, value]);
  }

  // Forgets those who are not there any more.
  keep(people) {
    for (const person of this.#latest.keys()) if (!people.has(person)) this.#latest.delete(person);
  }
}
