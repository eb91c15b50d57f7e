// The cluster as one of its nodes sees it: a list of nodes, read as it comes and shown as it is.

import { Card } from "./card.js";
import { arrange, element, setText } from "./dom.js";
import { Live } from "./live.js";
import { Mesh } from "./mesh.js";
import { time } from "./numbers.js";
import { session, signIn, signOut } from "./session.js";
import { judge } from "./state.js";

// More nodes than this are folded at first.
const FEW = 12;

const STATES = ["healthy", "draining", "suspect", "stale"];

const at = (id) => document.getElementById(id);
const cards = new Map();
const mesh = new Mesh(at("mesh"), at("picture"), at("caption"));
let states = new Map();
let isOpen;
let node;

const live = new Live({ list: showList, trouble: showTrouble, refused: enter });

// Answers whether there is nothing to show for now.
async function enter() {
  const now = await session();
  if (!now) return false;
  node = now.node_id;
  at("leave").hidden = now.access !== "signed_in";
  at("login").hidden = now.access !== "signed_out";
  if (now.access === "open" || now.access === "signed_in") return false;
  forget();
  showStatus("waiting", "signed out");
  if (now.access === "closed") showEmpty("Nobody can sign in: this node has no ADMIN_TOKEN.");
  else at("token").focus();
  return true;
}

function showList({ data, timing }) {
  const isFirst = isOpen === undefined;
  isOpen ??= data.length <= FEW;
  if (isFirst) showFold();
  const now = new Map(data.map((entry) => [entry.node_id, judge(entry, timing)]));
  const ids = new Set(now.keys());
  for (const id of cards.keys()) if (!ids.has(id)) cards.delete(id);
  const shown = data.map((entry) => {
    if (!cards.has(entry.node_id)) cards.set(entry.node_id, new Card(entry.node_id, isOpen));
    const card = cards.get(entry.node_id);
    card.update(entry, now.get(entry.node_id));
    return card.root;
  });
  arrange(at("cards"), shown);
  mesh.update(data, now);
  if (!isFirst) tell(states, now);
  states = now;
  showCounts();
  at("cluster").hidden = data.length === 0;
  at("fold").hidden = data.length === 0;
  showEmpty(data.length === 0 ? "No node is in the registry." : "");
  showNoTrouble();
  showStatus("live", `live from ${node}`);
}

// The last list stays, as what it is.
function showTrouble(reason, age) {
  at("trouble").hidden = false;
  setText(at("reason"), `${reason.charAt(0).toUpperCase()}${reason.slice(1)}.`);
  setText(at("since"), age === undefined ? "There is no list yet." : `This is how it was ${time(Math.round(age / 1000))} ago.`);
  document.body.classList.add("old");
  showStatus("failed", "not live");
}

function showNoTrouble() {
  at("trouble").hidden = true;
  setText(at("reason"), "");
  document.body.classList.remove("old");
}

function showCounts() {
  const all = [...states.values()];
  const parts = STATES.map((state) => [state, all.filter((other) => other === state).length]).filter(([, count]) => count > 0);
  const total = element("li", { class: "total" }, element("b", {}, String(all.length)), all.length === 1 ? " node" : " nodes");
  const items = parts.map(([state, count]) => element("li", { "data-state": state }, `${count} ${state}`));
  const text = [total, ...items].map((item) => item.textContent).join();
  if (at("counts").dataset.text === text) return;
  at("counts").dataset.text = text;
  at("counts").replaceChildren(...(all.length > 0 ? [total, ...items] : []));
}

// What somebody who does not see the cards wants to hear.
function tell(before, now) {
  const news = [];
  for (const [id, state] of now) {
    if (!before.has(id)) news.push(`${id} has joined`);
    else if (before.get(id) !== state) news.push(`${id} is ${state}`);
  }
  for (const id of before.keys()) if (!now.has(id)) news.push(`${id} has left`);
  if (news.length > 0) setText(at("news"), news.join(", "));
}

function showFold() {
  setText(at("fold"), isOpen ? "Fold all" : "Unfold all");
}

function showEmpty(text) {
  setText(at("empty"), text);
  at("empty").hidden = !text;
}

function showStatus(state, text) {
  at("status").dataset.state = state;
  setText(at("status"), text);
}

function forget() {
  cards.clear();
  states.clear();
  isOpen = undefined;
  at("cards").replaceChildren();
  showCounts();
  showEmpty("");
  at("news").replaceChildren();
  for (const id of ["cluster", "fold"]) at(id).hidden = true;
  showNoTrouble();
}

at("fold").addEventListener("click", () => {
  isOpen = !isOpen;
  for (const card of cards.values()) card.open(isOpen);
  showFold();
});

at("login").addEventListener("submit", async (event) => {
  event.preventDefault();
  setText(at("refusal"), "");
  const refusal = await signIn(at("token").value);
  if (refusal) {
    setText(at("refusal"), refusal);
    at("token").select();
    return;
  }
  at("token").value = "";
  // The form is about to vanish, and the focus with it.
  document.querySelector("main").focus();
  begin();
});

at("leave").addEventListener("click", async () => {
  live.stop();
  await signOut();
  begin();
});

async function begin() {
  if (!(await enter())) live.start();
}

begin();
