// What is on the page. Knows nothing of sockets.
//
// Invariant: what others wrote becomes text, never markup.

const $ = (id) => document.getElementById(id);

function element(name, className, text = "") {
  const made = document.createElement(name);
  made.className = className;
  made.textContent = text;
  return made;
}

// Everybody sees a person in the same colour.
function colour(target, person) {
  let hash = 0;
  for (const unit of person) hash = (hash * 31 + unit.codePointAt(0)) >>> 0;
  target.style.setProperty("--hue", (hash * 137) % 360);
  return target;
}

function avatar(person, name) {
  const made = colour(element("span", "avatar", [...name][0]?.toUpperCase() ?? "?"), person);
  made.ariaHidden = "true";
  return made;
}

export function showRoom(room) {
  $("room").textContent = room;
  document.title = `${room} · Switchboard demo`;
}

export function showStatus(state, text) {
  $("status").dataset.state = state;
  $("status").textContent = text;
}

export function showNodes(others, room) {
  const links = others.map(({ name, url }) => {
    const link = element("a", "", `${name} ↗`);
    link.href = `${url}/demo?room=${encodeURIComponent(room)}`;
    link.target = "_blank";
    link.rel = "noopener";
    const item = element("li", "");
    item.append(link);
    return item;
  });
  $("nodes").replaceChildren(...links);
}

export function showPeople(people, me) {
  const items = [...people].map(([person, name]) => {
    const item = element("li", "");
    item.append(avatar(person, name), element("span", "name", name));
    if (person === me) item.append(element("span", "note", "you"));
    return item;
  });
  $("people").replaceChildren(...items);
}

// Answers what was added. `standing` is "pending" until it is stored.
export function addMessage({ person, name, text }, mine, standing, position) {
  const log = $("log");
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 80;
  const item = element("li", `message ${mine ? "mine" : ""} ${standing}`);
  const bubble = element("div", "bubble");
  bubble.append(element("span", "name", name), element("p", "", text));
  item.append(avatar(person, name), bubble);
  item.title = position ?? "on its way";
  // Read out once, when it is stored.
  item.ariaHidden = position ? null : "true";
  log.append(item);
  $("empty").hidden = true;
  if (atEnd || mine) log.scrollTop = log.scrollHeight;
  return item;
}

export function addNotice(text) {
  $("log").append(element("li", "notice", text));
  $("empty").hidden = true;
}

export function showTyping(names) {
  const [first, second] = names;
  const text = {
    0: "",
    1: `${first} is typing…`,
    2: `${first} and ${second} are typing…`,
  }[names.length] ?? `${names.length} people are typing…`;
  // A live region speaks whenever it is set, even to the same.
  if ($("typing").textContent !== text) $("typing").textContent = text;
}

const cursors = new Map();

// Places are shares of the stage, which has another size in every window.
export function showCursors(live, names) {
  const gone = new Set(cursors.keys());
  const stage = $("stage").getBoundingClientRect();
  for (const [person, { x, y }] of live) {
    gone.delete(person);
    let cursor = cursors.get(person);
    if (!cursor) {
      cursor = colour(element("div", "cursor"), person);
      cursor.append(element("span", "name", names.get(person)));
      $("cursors").append(cursor);
      cursors.set(person, cursor);
    }
    cursor.style.transform = `translate(${stage.left + x * stage.width}px, ${stage.top + y * stage.height}px)`;
  }
  for (const person of gone) {
    cursors.get(person).remove();
    cursors.delete(person);
  }
}

// Calls back with the name, once there is one. It is kept as long as the tab.
export function introduce(welcome) {
  const KEY = "switchboard:name";
  const known = sessionStorage.getItem(KEY);
  if (known) return welcome(known);
  const dialog = $("welcome");
  dialog.addEventListener("cancel", (event) => event.preventDefault());
  $("introduction").addEventListener("submit", (event) => {
    event.preventDefault();
    const name = $("name").value.trim();
    if (!name) return;
    sessionStorage.setItem(KEY, name);
    dialog.close();
    $("text").focus();
    welcome(name);
  });
  dialog.showModal();
}

export function onInput(handle) {
  $("text").addEventListener("input", () => handle($("text").value !== ""));
}

export function onSend(handle) {
  $("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = $("text").value.trim();
    if (!text) return;
    $("text").value = "";
    handle(text);
  });
}

// Calls back with a place, or with null when the pointer is elsewhere.
export function onPoint(handle) {
  const stage = $("stage");
  stage.addEventListener("pointermove", ({ clientX, clientY }) => {
    const { left, top, width, height } = stage.getBoundingClientRect();
    handle({ x: (clientX - left) / width, y: (clientY - top) / height });
  });
  stage.addEventListener("pointerleave", () => handle(null));
}
