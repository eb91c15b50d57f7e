// The mesh as a picture, from the one key `stats.mesh`: a line for each pair of nodes, dashed where their events take the way around it.

import { drawn, setText } from "./dom.js";
import { time } from "./numbers.js";

// Round trips stand at the lines of so many nodes, and names at the nodes of so many.
const FEW = { trips: 6, names: 60 };

// More nodes than this have more pairs than anybody can see, or a browser can draw in a second.
const MOST = 200;

// Of the circle's radius, and around it for names.
const RADIUS = { few: 90, many: 140 };
const MARGIN = { few: 48, many: 70 };

const LONGEST_NAME = 16;

export class Mesh {
  #section;
  #picture;
  #caption;
  #drawn;

  constructor(section, picture, caption) {
    this.#section = section;
    this.#picture = picture;
    this.#caption = caption;
  }

  // `states` says how each node is.
  update(list, states) {
    const nodes = list.filter(({ stats }) => stats.mesh || list.some((other) => other.stats.mesh));
    this.#section.hidden = nodes.length === 0;
    this.#section.classList.toggle("large", nodes.length > FEW.trips);
    if (nodes.length === 0) return;
    if (nodes.length > MOST) {
      this.#drawn = undefined;
      this.#picture.replaceChildren();
      setText(this.#caption, `${nodes.length.toLocaleString("en")} nodes: too many for a picture.`);
      return;
    }
    const pairs = links(nodes);
    const news = JSON.stringify([nodes.map(({ node_id: id }) => [id, states.get(id)]), pairs]);
    if (this.#drawn === news) return;
    this.#drawn = news;
    const words = summary(nodes, pairs);
    this.#picture.replaceChildren(picture(nodes, pairs, states, words));
    setText(this.#caption, words);
  }
}

// Each pair once: whether events go straight, and the round trip in microseconds if somebody knows it. Pure.
export function links(nodes) {
  // Who has spoken later and does not know of the peer has no link to it, whatever the other one's last word was. Who spoke before may not have
  // known of it yet.
  const isLater = (node, peer) => node.heartbeat_age_ms < peer.heartbeat_age_ms;
  const told = (node, peer) => {
    const { mesh } = node.stats;
    return mesh?.peers?.[peer.node_id] ?? (mesh && isLater(node, peer) ? { ready: false } : undefined);
  };
  return nodes.flatMap((one, i) =>
    nodes.slice(i + 1).map((other) => {
      const ends = [told(one, other), told(other, one)].filter(Boolean);
      const trips = ends.map(({ rtt_us: rtt }) => rtt).filter(Number.isFinite);
      const isDirect = ends.length > 0 && ends.every(({ ready }) => ready === true);
      return { ends: [one.node_id, other.node_id], isDirect, rtt: trips.length > 0 ? Math.min(...trips) : undefined };
    }),
  );
}

function summary(nodes, pairs) {
  if (pairs.length === 0) return "One node, no peers.";
  const direct = pairs.filter(({ isDirect }) => isDirect);
  const trips = direct.map(({ rtt }) => rtt).filter(Number.isFinite).sort((a, b) => a - b);
  const range = [...new Set([trips[0], trips.at(-1)].map((trip) => trip && time(trip * 1e-6)))].filter(Boolean).join(" to ");
  const count = (n, what) => `${n.toLocaleString("en")} ${what}${n === 1 ? "" : "s"}`;
  const words = [`${count(direct.length, "direct link")} among ${count(nodes.length, "node")}`];
  if (range) words.push(`round trip ${range}`);
  const around = pairs.length - direct.length;
  if (around > 0) words.push(`${count(around, "pair")} through PostgreSQL (dashed)`);
  return `${words.join("; ")}.`;
}

function picture(nodes, pairs, states, words) {
  const places = new Map(nodes.map(({ node_id: id }, i) => [id, place(i, nodes.length)]));
  const isFew = nodes.length <= FEW.trips;
  // What is not as it should be lies on top.
  const lines = [...pairs].sort((a, b) => b.isDirect - a.isDirect).map(({ ends, isDirect }) => {
    const [from, to] = ends.map((id) => places.get(id));
    return drawn("line", { class: isDirect ? "link" : "link around", x1: from.x, y1: from.y, x2: to.x, y2: to.y });
  });
  const trips = isFew ? pairs.filter(({ isDirect, rtt }) => isDirect && rtt !== undefined).map((pair) => trip(pair, places)) : [];
  const dots = nodes.flatMap(({ node_id: id }) => {
    const { x, y } = places.get(id);
    const dot = drawn("circle", { class: "dot", cx: x, cy: y, r: isFew ? 9 : 5, "data-state": states.get(id) });
    return nodes.length <= FEW.names ? [dot, name(id, places.get(id), isFew)] : [dot];
  });
  const svg = drawn(
    "svg",
    { viewBox: frame([...places.values()], isFew), role: "img", "aria-label": words, class: isFew ? "few" : "many" },
    ...lines,
    ...trips,
    ...dots,
  );
  // Many lines make a surface, which should not be a wall.
  svg.style.setProperty("--strength", Math.max(0.08, Math.min(0.6, 12 / nodes.length ** 1.3)).toFixed(2));
  return svg;
}

// On a circle, from the top on.
function place(index, count) {
  const angle = (index / count) * 2 * Math.PI - Math.PI / 2;
  const radius = count === 1 ? 0 : count > FEW.trips ? RADIUS.many : RADIUS.few;
  return { x: round(Math.cos(angle) * radius), y: round(Math.sin(angle) * radius), angle };
}

// As wide as the circle, and as high as it needs to be.
function frame(places, isFew) {
  const [margin, radius] = isFew ? [MARGIN.few, RADIUS.few] : [MARGIN.many, RADIUS.many];
  const heights = places.map(({ y }) => y);
  const [top, bottom] = [Math.min(...heights) - margin, Math.max(...heights) + margin];
  const half = radius + margin;
  return [-half, round(top), 2 * half, round(bottom - top)].join(" ");
}

function trip({ ends, rtt }, places) {
  const [from, to] = ends.map((id) => places.get(id));
  const between = (axis) => round((from[axis] + to[axis]) / 2);
  return drawn("text", { class: "trip", x: between("x"), y: between("y") }, time(rtt * 1e-6));
}

function name(id, { x, y, angle }, isFew) {
  const text = id.length > LONGEST_NAME ? `${id.slice(0, LONGEST_NAME - 1)}…` : id;
  if (isFew) {
    const above = y < 0 || (y === 0 && x === 0);
    return drawn("text", { class: "name", x, y: y + (above ? -18 : 28), "text-anchor": "middle" }, text);
  }
  // Along the radius, and never upside down.
  const degrees = (angle * 180) / Math.PI;
  const isLeft = Math.cos(angle) < -1e-6;
  const turn = isLeft ? degrees + 180 : degrees;
  return drawn(
    "text",
    { class: "name", transform: `rotate(${round(turn)} ${x} ${y})`, x: x + (isLeft ? -10 : 10), y: y + 3, "text-anchor": isLeft ? "end" : "start" },
    text,
  );
}

const round = (number) => Math.round(number * 10) / 10;
