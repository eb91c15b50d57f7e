// Which node the page speaks to. When that one is gone, or says no, the next one is tried.
//
// Invariant: there is always one to try, and the page's own node is among them.

export class Nodes {
  #all;
  #current;

  constructor({ node_id, peers }) {
    const all = [{ node_id, url: location.origin }, ...peers].map(({ node_id, url }) => ({ name: node_id, url }));
    this.#all = all.sort((one, other) => one.name.localeCompare(other.name, "en", { numeric: true }));
    this.#current = all.findIndex(({ name }) => name === node_id);
  }

  static async known() {
    const answer = await fetch("/demo/nodes");
    if (!answer.ok) throw new Error(`the node answered ${answer.status}`);
    return new Nodes(await answer.json());
  }

  get current() {
    return this.#all[this.#current];
  }

  get others() {
    return this.#all.filter(({ url }) => url !== location.origin);
  }

  // What the client uses for a WebSocket: one to the node whose turn it is.
  get transport() {
    const nodes = this;
    return class extends WebSocket {
      constructor(address, protocols) {
        const url = new URL(address);
        url.host = new URL(nodes.current.url).host;
        super(url, protocols);
        // Before the client's own handler, so that it comes back to another node.
        this.addEventListener("close", () => nodes.#next());
      }
    };
  }

  #next() {
    this.#current = (this.#current + 1) % this.#all.length;
  }
}
