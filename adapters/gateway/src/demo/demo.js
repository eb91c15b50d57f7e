// A chat room over Switchboard, with the client `phoenix` as it is.
//
// Messages are durable: stored under a key that makes retries harmless, and read from where this page stopped, whichever node it comes
// back to. Typing and cursors are ephemeral: whatever gets lost is over by itself.

import { Presence, Socket } from "./phoenix.mjs";
import { Fading } from "./fading.js";
import { Nodes } from "./nodes.js";
import * as view from "./view.js";

// Milliseconds.
const TYPING = { ttl: 3500, every: 1500 };
const CURSOR = { ttl: 5000, every: 50 };
const REDRAW = 250;
const PATIENCE = 5000;

// The same that the command line's examples speak of.
const room = (new URLSearchParams(location.search).get("room") || "1").slice(0, 64);

async function enter(name) {
  const me = crypto.randomUUID();
  const nodes = await Nodes.known();
  view.showNodes(nodes.others, room);

  let position = "oldest";
  const socket = new Socket("/socket", {
    transport: nodes.transport,
    heartbeatIntervalMs: PATIENCE,
    reconnectAfterMs: (tries) => Math.min(50 * 2 ** tries, 2000) * (0.5 + Math.random()),
    rejoinAfterMs: (tries) => Math.min(250 * 2 ** tries, 5000),
  });
  const channel = socket.channel(`room:${room}`, () => ({ after: position, presence: { key: me } }));
  const connected = () => channel.state === "joined" && socket.isConnected();
  const waiting = () => view.showStatus("waiting", "reconnecting…");
  socket.onClose(waiting);
  socket.onError(waiting);
  channel.onError(waiting);

  // Who is here.
  const names = new Map();
  const presence = new Presence(channel);
  presence.onSync(() => {
    names.clear();
    presence.list((person, { metas }) => names.set(person, text(metas[0].name, "somebody")));
    typing.keep(names);
    cursors.keep(names);
    view.showPeople(names, me);
    redraw();
  });

  // What they are doing.
  const typing = new Fading(TYPING.ttl);
  const cursors = new Fading(CURSOR.ttl);
  let count = 0;
  const tell = (event, what) => {
    if (connected()) channel.push(event, { person: me, count: ++count, ...what });
  };
  const hear = (event, fading, read) => channel.on(event, (what) => {
    if (what?.person !== me && names.has(what?.person)) fading.put(what.person, what.count, read(what), Date.now());
    redraw();
  });
  hear("typing", typing, ({ on }) => (on === true ? true : null));
  hear("cursor", cursors, ({ at }) => (isShare(at?.x) && isShare(at?.y) ? at : null));
  const redraw = () => {
    const now = Date.now();
    view.showTyping(typing.live(now).map(([person]) => names.get(person)));
    view.showCursors(cursors.live(now), names);
  };
  setInterval(redraw, REDRAW);

  const announce = spaced(TYPING.every, () => tell("typing", { on: true }));
  view.onInput((something) => (something ? announce() : (announce.cancel(), tell("typing", { on: false }))));
  view.onPoint(spaced(CURSOR.every, (at) => tell("cursor", { at })));

  // What they said.
  const outbox = new Map();
  const deliver = (key) => {
    if (!connected() || !outbox.has(key)) return;
    channel
      .push("publish", { event: "message", payload: outbox.get(key).payload, durable: true, key }, PATIENCE)
      .receive("timeout", () => deliver(key))
      .receive("error", ({ message, retry_after_ms }) => {
        if (retry_after_ms) return setTimeout(() => deliver(key), retry_after_ms);
        outbox.get(key)?.shown.remove();
        outbox.delete(key);
        view.addNotice(`Not sent: ${message}`);
      });
  };
  view.onSend((said) => {
    announce.cancel();
    const payload = { person: me, name, text: said, count: ++count, key: crypto.randomUUID() };
    outbox.set(payload.key, { payload, shown: view.addMessage(payload, true, "pending") });
    deliver(payload.key);
  });
  channel.on("message", (said, at) => {
    // Anybody may publish here. What has no position is not stored.
    if (!at) return;
    position = at;
    outbox.get(said?.key)?.shown.remove();
    outbox.delete(said?.key);
    const person = text(said?.person, "somebody");
    const message = { person, name: text(said?.name, "somebody"), text: text(said?.text, JSON.stringify(said)) };
    view.addMessage(message, person === me, "stored", at);
    if (names.has(person)) typing.put(person, said.count, null, Date.now());
    redraw();
  });
  channel.on("switchboard:pruned", () => view.addNotice("Older messages are gone."));
  channel.on("switchboard:reset", ({ head }) => {
    position = head;
    view.addNotice("The history was replaced.");
  });

  channel.join()
    .receive("ok", () => {
      view.showStatus("connected", `on ${nodes.current.name}`);
      channel.push("presence", { event: "track", payload: { name } });
      outbox.forEach((_, key) => deliver(key));
    })
    .receive("error", ({ message }) => view.showStatus("waiting", message));
  socket.connect();
}

// Calls at once, then at most once per `every`, with what came last.
function spaced(every, call) {
  let timer;
  let latest;
  const fire = () => {
    const arguments_ = latest;
    latest = undefined;
    timer = arguments_ && setTimeout(fire, every);
    if (arguments_) call(...arguments_);
  };
  const ask = (...arguments_) => {
    latest = arguments_;
    if (!timer) fire();
  };
  ask.cancel = () => {
    clearTimeout(timer);
    timer = latest = undefined;
  };
  return ask;
}

function text(value, otherwise) {
  return typeof value === "string" && value ? value : otherwise;
}

function isShare(value) {
  return typeof value === "number" && value >= 0 && value <= 1;
}

view.showRoom(room);
view.introduce((name) => enter(name).catch((error) => view.showStatus("failed", `${error.message}; reload the page`)));
