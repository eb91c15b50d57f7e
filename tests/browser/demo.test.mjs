// The demo page in two windows of a real browser, each on a node of its own.
//
// DEMO_NODES: [{url, pid}, …] of three nodes, in order; the test kills the first two. CHROMIUM: the browser. SCREENSHOTS: where to leave some.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";

const nodes = JSON.parse(process.env.DEMO_NODES);
const hosts = nodes.map(({ url }) => new URL(url).host);

// After the last key, in milliseconds: the page promises 5000, the rest is slack for a busy machine.
const TTL = 6000;

let browser;
before(async () => {
  browser = await chromium.launch({
    executablePath: process.env.CHROMIUM,
    // Its sandbox does not work for root.
    args: process.getuid() === 0 ? ["--no-sandbox"] : [],
  });
});
after(() => browser?.close());

async function enter(node, name, room, options) {
  const page = await browser.newPage(options);
  page.setDefaultTimeout(20_000);
  page.complaints = [];
  page.strangers = [];
  page.on("console", (message) => {
    if (message.type() === "error") page.complaints.push(message.text());
  });
  page.on("pageerror", (error) => page.complaints.push(String(error)));
  const judge = (url) => {
    if (!hosts.includes(new URL(url).host)) page.strangers.push(url);
  };
  page.on("request", (request) => judge(request.url()));
  page.typed = [];
  page.on("websocket", (socket) => {
    judge(socket.url());
    socket.on("framesent", ({ payload }) => {
      const [, , , event, content] = JSON.parse(payload);
      if (event === "phx_join") page.person = content.presence.key;
      if (event === "typing") page.typed.push(content);
    });
  });
  await page.goto(`${node.url}/demo?room=${room}`);
  await shot(page, "welcome");
  await page.getByLabel("Name").fill(name);
  await page.keyboard.press("Enter");
  await page.locator("#status[data-state=connected]").waitFor();
  return page;
}

const say = async (page, text) => {
  await page.getByLabel("Message", { exact: true }).fill(text);
  await page.keyboard.press("Enter");
};
const stored = (page, text) => page.locator(".message.stored", { hasText: text });
const hears = async (page, text) => {
  await stored(page, text).waitFor();
  assert.equal(await stored(page, text).count(), 1, `${text} came more than once`);
};
const typing = (page) => page.locator("#typing");
const shows = async (page, selector, text) => {
  const place = page.locator(selector);
  const shown = page.waitForFunction(([s, t]) => document.querySelector(s).textContent === t, [selector, text]);
  await shown.catch(async () => assert.fail(`${selector} shows ${await place.textContent()}, not ${text}; ${page.complaints}`));
};
const here = (page, count) =>
  page.waitForFunction((n) => document.querySelectorAll("#people li").length === n, count);
const on = (page, node) => shows(page, "#status", `on node-${nodes.indexOf(node) + 1}`);
// Answers how long something that just happened takes to be over, in milliseconds.
const stopwatch = async (until) => {
  const start = performance.now();
  await until();
  return performance.now() - start;
};

async function shot(page, name) {
  if (process.env.SCREENSHOTS) await page.screenshot({ path: `${process.env.SCREENSHOTS}/${name}.png` });
}

// An event from outside, as anything may publish it.
async function publish(room, event, payload) {
  const response = await fetch(`${nodes[2].url}/api/channels/room:${room}/events`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ event, payload, ephemeral: true }),
  });
  assert.equal(response.status, 202);
}

test("two windows on two nodes talk, and see who is there, who is typing and where", async () => {
  const alice = await enter(nodes[0], "Alice", "talk");
  await say(alice, "is anybody here?");
  const bob = await enter(nodes[1], "Bob", "talk", { colorScheme: "dark" });
  await Promise.all([on(alice, nodes[0]), on(bob, nodes[1]), here(alice, 2), here(bob, 2)]);
  await hears(bob, "is anybody here?");
  await say(bob, "<b>hello</b> & welcome");
  await hears(alice, "<b>hello</b> & welcome");

  await alice.mouse.move(300, 300);
  await bob.locator(".cursor .name", { hasText: "Alice" }).waitFor();
  await bob.mouse.move(520, 420);
  await bob.getByLabel("Message", { exact: true }).fill("I am");
  await shows(alice, "#typing", "Bob is typing…");
  await alice.locator(".cursor .name", { hasText: "Bob" }).waitFor();
  await shot(alice, "desktop-light");
  await shot(bob, "desktop-dark");
  const phone = await enter(nodes[2], "Carol", "talk", { viewport: { width: 390, height: 780 } });
  await here(phone, 3);
  await hears(phone, "<b>hello</b> & welcome");
  assert.ok(await phone.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "it is too wide");
  await shot(phone, "phone");

  await phone.close();
  await here(alice, 2);
  for (const page of [alice, bob]) {
    assert.deepEqual(page.complaints, []);
    assert.deepEqual(page.strangers, []);
    await page.close();
  }
});

test("b120 whatever happens to who is typing, it is over in time and does not come back", async () => {
  const alice = await enter(nodes[0], "Alice", "typing");
  const witness = await enter(nodes[2], "Witness", "typing");
  const starts = async (page, name) => {
    await here(alice, 3);
    await page.getByLabel("Message", { exact: true }).fill("I was going to");
    await shows(alice, "#typing", `${name} is typing…`);
  };
  const typist = async (name) => {
    const page = await enter(nodes[1], name, "typing");
    await starts(page, name);
    return page;
  };
  const over = () => shows(alice, "#typing", "");
  // Events of one publisher come in order: when the second has, the first was seen.
  let seen = 0;
  const comesLate = async (payload) => {
    await publish("typing", "typing", payload);
    const x = ++seen / 10;
    await publish("typing", "cursor", { person: witness.person, count: 1000 + seen, at: { x, y: 0.5 } });
    await alice.waitForFunction((share) => {
      const { left, width } = document.querySelector("#stage").getBoundingClientRect();
      const cursor = document.querySelector(".cursor");
      return cursor && Math.abs(new DOMMatrix(cursor.style.transform).e - left - share * width) < 1;
    }, x);
    assert.equal(await typing(alice).textContent(), "", "it came back");
  };

  const sends = await typist("Sends");
  await say(sends, "that is it");
  await hears(alice, "that is it");
  assert.equal(await typing(alice).textContent(), "", "the message did not end it");
  await comesLate(sends.typed[0]);

  await starts(sends, "Sends");
  await sends.getByLabel("Message", { exact: true }).fill("");
  await over();
  await comesLate(sends.typed[0]);

  await starts(sends, "Sends");
  assert.ok((await stopwatch(over)) < TTL, "silence did not end it");

  await starts(sends, "Sends");
  await sends.close();
  assert.ok((await stopwatch(over)) < TTL, "the end of the tab did not end it");
  await here(alice, 2);
  await comesLate({ ...sends.typed[0], count: 1_000_000 });
  await Promise.all([alice.close(), witness.close()]);
});

test("windows of killed nodes move on by themselves, and nothing is lost", async () => {
  const alice = await enter(nodes[0], "Alice", "kill");
  const bob = await enter(nodes[1], "Bob", "kill");
  await here(alice, 2);
  await say(alice, "before");
  await hears(bob, "before");

  await alice.getByLabel("Message", { exact: true }).fill("I am typing while my node dies");
  await shows(bob, "#typing", "Alice is typing…");
  process.kill(nodes[0].pid, "SIGKILL");
  assert.ok((await stopwatch(() => shows(bob, "#typing", ""))) < TTL, "the end of its node did not end it");
  await on(alice, nodes[1]);
  await say(alice, "after the first");
  await hears(bob, "after the first");
  await say(bob, "I can hear you");
  await hears(alice, "I can hear you");

  process.kill(nodes[1].pid, "SIGKILL");
  // Not yet there, or just about to be: it is sent when there is a node to send it to.
  await say(alice, "after the second");
  await Promise.all([on(alice, nodes[2]), on(bob, nodes[2])]);
  await hears(bob, "after the second");
  await say(bob, "still here");
  await hears(alice, "still here");
  await Promise.all([here(alice, 2), here(bob, 2)]);
  for (const page of [alice, bob]) {
    assert.equal(await page.locator(".message").count(), 5);
    const unexpected = page.complaints.filter((text) => !/^WebSocket connection to .* failed/.test(text));
    assert.deepEqual(unexpected, []);
    assert.deepEqual(page.strangers, []);
  }
});
