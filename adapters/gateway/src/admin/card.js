// One node: who it is, how it is, and whatever it tells.

import { element, setText } from "./dom.js";
import { Fields } from "./fields.js";
import { History } from "./history.js";
import { time } from "./numbers.js";
import { uptime } from "./state.js";

export class Card {
  #history = new History();
  #incarnation;
  #entry;
  #badge = element("span", { class: "badge" });
  #endpoint = element("span", { class: "endpoint" });
  #heartbeat = element("dd");
  #uptime = element("dd");
  #stats = new Fields();
  #meta = new Fields();
  #body;
  #toggle;

  constructor(id, isOpen) {
    const anchor = `node-${id}`;
    const about = element("details", { class: "fold about" }, element("summary", {}, "about this process"), this.#meta.root);
    this.#body = element("div", { class: "body", id: `${anchor}-numbers` }, this.#stats.root, about);
    this.#toggle = element("button", { type: "button", class: "toggle", "aria-controls": this.#body.id, "aria-label": `numbers of ${id}` });
    this.#toggle.addEventListener("click", () => this.open(this.#body.hidden));
    const name = element("h2", { id: anchor, title: id }, id);
    const facts = element(
      "dl",
      { class: "facts" },
      element("div", {}, element("dt", {}, "heartbeat"), this.#heartbeat),
      element("div", {}, element("dt", {}, "uptime"), this.#uptime),
    );
    const head = element("header", {}, element("div", { class: "title" }, name, this.#badge, this.#toggle), this.#endpoint, facts);
    this.root = element("li", { class: "card" }, element("article", { "aria-labelledby": anchor }, head, this.#body));
    this.open(isOpen);
  }

  open(isOpen) {
    this.#body.hidden = !isOpen;
    this.#toggle.setAttribute("aria-expanded", String(isOpen));
    if (isOpen && this.#entry) this.#showBody();
  }

  update(entry, state) {
    if (this.#incarnation !== entry.incarnation) {
      this.#incarnation = entry.incarnation;
      this.#history = new History();
    }
    const isNews = this.#history.take(entry.heartbeat, entry.stats);
    this.#entry = entry;
    this.root.dataset.state = state;
    setText(this.#badge, state);
    setText(this.#endpoint, entry.endpoint);
    setText(this.#heartbeat, ago(entry.heartbeat_age_ms));
    setText(this.#uptime, time(Math.floor(uptime(entry) / 1000)));
    if (isNews && !this.#body.hidden) this.#showBody();
  }

  #showBody() {
    this.#stats.update(this.#entry.stats, this.#history);
    this.#meta.update(this.#entry.meta);
  }
}

// Tenths as long as they say something.
function ago(age) {
  return age < 10_000 ? `${(age / 1000).toFixed(1)} s ago` : `${time(Math.floor(age / 1000))} ago`;
}
