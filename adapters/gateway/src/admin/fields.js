// Whatever an object holds, as it comes: numbers with their unit and their last minutes, text as it is, objects folded.

import { arrange, drawn, element, setText } from "./dom.js";
import { pathOf } from "./history.js";
import { decimal, format, isCounter, perSecond } from "./numbers.js";

const SPARK = { width: 64, height: 18 };

// Deeper than that, an object is shown as its text.
const DEEPEST = 6;

export class Fields {
  #rows = new Map();
  #groups = new Map();
  #folds = new Map();
  #keys;
  #all = element("div", { class: "groups" });
  root = element("div");

  constructor(keys = []) {
    this.#keys = keys;
  }

  update(object, history) {
    const entries = Object.entries(object);
    const isNested = ([, value]) => isObject(value) && this.#keys.length < DEEPEST;
    const groups = [...grouped(entries.filter((entry) => !isNested(entry)))].map(([word, members]) => {
      const group = known(this.#groups, word, () => new Group(word));
      arrange(group.list, members.map(([key, value]) => this.#row(key, word, value, history)));
      return group.root;
    });
    const folds = entries.filter(isNested).map(([key, value]) => {
      const fold = known(this.#folds, key, () => new Fold(key, [...this.#keys, key]));
      fold.update(value, history);
      return fold.root;
    });
    arrange(this.#all, groups);
    arrange(this.root, [this.#all, ...folds]);
  }

  #row(key, word, value, history) {
    const row = known(this.#rows, `${word} ${key}`, () => new Row(key, word, pathOf([...this.#keys, key])));
    row.update(value, history);
    return row.root;
  }
}

// Keys by the first word that they share with another, and before them those that share none.
function grouped(entries) {
  const first = (key) => key.match(/^[^_]+_(?=.)/)?.[0] ?? "";
  const counts = new Map();
  for (const [key] of entries) counts.set(first(key), (counts.get(first(key)) ?? 0) + 1);
  const groups = new Map([["", []]]);
  for (const entry of entries) {
    const word = counts.get(first(entry[0])) > 1 ? first(entry[0]) : "";
    known(groups, word, () => []).push(entry);
  }
  return groups;
}

class Group {
  list = element("dl", { class: "fields" });

  constructor(word) {
    const title = word ? [element("h3", {}, word.slice(0, -1))] : [];
    this.root = element("div", { class: "group" }, ...title, this.list);
  }
}

class Row {
  #key;
  #path;
  #value = element("span", { class: "value" });
  #line = drawn("path", { class: "line" });
  #area = drawn("path", { class: "area" });
  #spark;

  // Its group's word need not be seen twice, but is part of the key.
  constructor(key, word, path) {
    this.#key = key;
    this.#path = path;
    const { width, height } = SPARK;
    this.#spark = drawn("svg", { class: "spark", viewBox: `0 -2 ${width} ${height + 4}`, "aria-hidden": "true" }, this.#area, this.#line);
    const name = element("dt", {}, element("span", { class: "hidden" }, word));
    // A long key may break where its words do.
    key.slice(word.length).split(/(?<=_)/).forEach((word, i) => name.append(...(i ? [element("wbr"), word] : [word])));
    this.root = element("div", { class: "field" }, name, element("dd", {}, this.#spark, this.#value));
  }

  update(value, history) {
    const isNumber = typeof value === "number";
    const line = isNumber ? (history?.line(this.#path, SPARK.width, SPARK.height) ?? "") : "";
    this.#spark.toggleAttribute("hidden", !line);
    this.#spark.classList.toggle("flat", isFlat(line));
    this.#line.setAttribute("d", line);
    this.#area.setAttribute("d", line && `${line}V${SPARK.height}H${line.slice(1).split(" ")[0]}Z`);
    this.root.classList.toggle("text", !isNumber && typeof value !== "boolean");
    if (isLink(value)) this.#link(value);
    else setText(this.#value, this.#words(value, history));
    this.root.title = isNumber ? `${this.#key}: ${value}` : "";
  }

  #words(value, history) {
    if (typeof value === "number") {
      if (!isCounter(this.#key)) return format(this.#key, value);
      const rate = history?.latest(this.#path);
      return rate === undefined ? `${decimal(value)} in all` : perSecond(this.#key, rate);
    }
    if (typeof value === "string") return value;
    if (Array.isArray(value) && !value.some(isObject)) return value.join(", ") || "none";
    return JSON.stringify(value);
  }

  #link(address) {
    if (this.#value.textContent === address) return;
    this.#value.replaceChildren(element("a", { href: address, rel: "noreferrer" }, address));
  }
}

class Fold {
  #count = element("span", { class: "count" });
  #fields;
  #seen;

  constructor(key, keys) {
    this.#fields = new Fields(keys);
    this.root = element("details", { class: "fold" }, element("summary", {}, element("span", {}, key), this.#count), this.#fields.root);
    this.root.addEventListener("toggle", () => this.#show());
  }

  update(value, history) {
    this.#seen = [value, history];
    setText(this.#count, String(Object.keys(value).length));
    this.#show();
  }

  // What nobody looks at costs nothing.
  #show() {
    if (this.root.open) this.#fields.update(...this.#seen);
  }
}

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const isLink = (value) => typeof value === "string" && /^https?:\/\/\S+$/.test(value);
const isFlat = (line) => new Set(line.match(/ [\d.]+/g)).size < 2;

function known(map, key, make) {
  if (!map.has(key)) map.set(key, make());
  return map.get(key);
}
