// The dashboard in a real browser, before a cluster of three nodes.
//
// NODES: [{url, pid}, …] of three nodes, in the order in which they joined; the test watches the first, kills the third, and in the end the
// first. EPHEMERAL: `mesh` or `pg`. ADMIN_TOKEN: theirs. OUTSIDE: the port where somebody does what a browser cannot. CHROMIUM: the browser.
// SCREENSHOTS: where to leave one of the page in trouble.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { connect } from "node:net";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

const nodes = JSON.parse(process.env.NODES);
const hosts = nodes.map(({ url }) => new URL(url).host);
const { ADMIN_TOKEN, EPHEMERAL, OUTSIDE } = process.env;
const [watched, other, killed] = nodes;
const axe = readFileSync(fileURLToPath(import.meta.resolve("axe-core/axe.min.js")), "utf8");

let browser;
let context;
let page;

before(async () => {
  browser = await chromium.launch({
    executablePath: process.env.CHROMIUM,
    // Its sandbox does not work for root.
    args: process.getuid() === 0 ? ["--no-sandbox"] : [],
  });
  context = await browser.newContext({ timezoneId: "Europe/Berlin" });
  page = await open();
});
after(() => browser?.close());

async function open() {
  const page = await context.newPage();
  page.setDefaultTimeout(20_000);
  page.complaints = [];
  page.urls = [];
  page.on("console", (message) => message.type() === "error" && page.complaints.push(message.text()));
  page.on("pageerror", (error) => page.complaints.push(String(error)));
  page.on("request", (request) => page.urls.push(request.url()));
  // By several hours, whatever the zone.
  await page.clock.setSystemTime(Date.now() - 7 * 3600_000);
  await page.goto(`${watched.url}/admin`);
  return page;
}

// Somebody who starts nodes and writes into the database.
function outside(wish) {
  return new Promise((resolve, reject) => {
    const socket = connect(Number(OUTSIDE), "127.0.0.1", () => socket.write(`${JSON.stringify(wish)}\n`));
    let text = "";
    socket.on("data", (data) => (text += data)).on("end", () => resolve(JSON.parse(text))).on("error", reject);
  });
}

async function api(path) {
  const response = await fetch(`${watched.url}${path}`, { headers: { authorization: `Bearer ${ADMIN_TOKEN}` } });
  return response.json();
}

const card = (id) => page.locator(".card", { has: page.getByRole("heading", { name: id, exact: true, level: 2 }) });
const ids = () => page.locator(".card h2").allTextContents();
const shows = (...expected) =>
  page.waitForFunction((ids) => [...document.querySelectorAll(".card h2")].map((h) => h.textContent).join() === ids, expected.join());
const stateOf = (id) => card(id).getAttribute("data-state");
const becomes = (id, state) => page.locator(`.card[data-state=${state}]`, { has: page.getByRole("heading", { name: id, exact: true }) }).waitFor();
const keys = (place) => place.locator("dt").allTextContents();
// In seconds, as it is shown.
const heartbeat = async (id) => Number((await card(id).locator(".facts dd").first().textContent()).match(/^([\d.]+) s ago$/)[1]);

async function isAccessible(what) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run());
  const grave = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
  assert.deepEqual(grave.map(({ id, nodes }) => [id, nodes.map(({ html }) => html)]), [], what);
}

async function inEveryLook(check) {
  for (const colorScheme of ["light", "dark"]) {
    for (const viewport of [{ width: 1280, height: 800 }, { width: 390, height: 844 }]) {
      await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
      await page.setViewportSize(viewport);
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${viewport.width} is too narrow`);
      await check(`${colorScheme}, ${viewport.width} px wide`);
    }
  }
  await page.setViewportSize({ width: 1280, height: 800 });
}

test("b128 the token is sent once, in a body, and kept by nobody", async () => {
  await inEveryLook(isAccessible);
  assert.equal(await page.evaluate(() => document.activeElement.id), "token");
  await page.keyboard.type("wrong");
  await page.keyboard.press("Enter");
  await page.getByText("That is not the admin token of this node.").waitFor();
  assert.deepEqual(await ids(), []);
  await isAccessible("refused");
  // The browser itself says so of every 401.
  assert.match(page.complaints.splice(0).join("\n"), /^[^\n]*401 \(Unauthorized\)$/);

  await page.keyboard.type(ADMIN_TOKEN);
  await page.keyboard.press("Enter");
  await shows("one", "two", "three");
  const [cookie, ...others] = await context.cookies(`${watched.url}/admin`);
  const { name, path, httpOnly, sameSite, secure } = cookie;
  assert.deepEqual([name, path, httpOnly, sameSite, secure, others], ["switchboard_admin", "/admin", true, "Strict", false, []]);
  const kept = await page.evaluate(() => [document.cookie, localStorage.length, sessionStorage.length, location.href, token.value]);
  assert.deepEqual(kept, ["", 0, 0, `${watched.url}/admin`, ""]);
  assert.ok(!page.urls.some((url) => url.includes(ADMIN_TOKEN) || url.includes(cookie.value)));
  assert.ok(!(await page.content()).includes(ADMIN_TOKEN));
});

test("three nodes are three cards, in their order, with every key that they tell", async () => {
  const { data } = await api("/api/admin/cluster");
  assert.deepEqual(await ids(), data.map(({ node_id: id }) => id));
  for (const { node_id: id, endpoint, stats } of data) {
    await becomes(id, "healthy");
    const text = await card(id).textContent();
    assert.ok(text.includes(endpoint), text);
    const shown = [...(await keys(card(id))), ...(await card(id).locator("summary > span:first-child").allTextContents())];
    for (const key of Object.keys(stats)) assert.ok(shown.includes(key), `${key} of ${id} is not among ${shown}`);
  }
  // Two heartbeats make a line, and a rate.
  await card("one").locator(".field", { hasText: "rss_bytes" }).locator(".line[d^=M]").waitFor();
  assert.match(await card("one").locator(".field", { hasText: "rss_bytes" }).locator(".value").textContent(), /^[\d.]+ MiB$/);
  await page.waitForFunction(() => [...document.querySelectorAll(".field")].some((f) => /http_requests_total.*\/s$/.test(f.textContent)));
  await card("one").locator("summary", { hasText: "postgres" }).click();
  const nested = card("one").locator("details[open] dt");
  await nested.first().waitFor();
  assert.deepEqual(await nested.allTextContents(), Object.keys(data[0].stats.postgres).filter((key) => typeof data[0].stats.postgres[key] !== "object"));
});

test("b010 a heartbeat is as old as PostgreSQL says, whatever the clocks and zones of browser, nodes and database", async () => {
  const zone = await page.evaluate(() => [Intl.DateTimeFormat().resolvedOptions().timeZone, Date.now()]);
  assert.equal(zone[0], "Europe/Berlin");
  assert.ok(Date.now() - zone[1] > 6 * 3600_000, "the browser's clock is right");
  for (const id of ["one", "two", "three"]) {
    assert.ok((await heartbeat(id)) < 3, `${id} looks ${await heartbeat(id)} s old`);
    const uptime = await card(id).locator(".facts dd").nth(1).textContent();
    assert.match(uptime, /^(\d+ s|\d min \d+ s)$/);
  }
});

test("whatever a node tells is shown as it is", async () => {
  const stats = {
    quarks_bytes: 2048, unheard_of: "<b>bold</b>", spin_ratio: 0.25, delay_us: 1500, list: [1, "two"], nothing: null, yes: true,
    nested: { deeper: { deepest_ms: 7 } }, link: "https://example.org/x", "__proto__x": 1, cpu: 12.34, huge: -1e300, script: "javascript:alert(1)",
  };
  const row = `'odd', 'h:1', now() + interval '1 hour', '${JSON.stringify(stats)}'`;
  await outside({ sql: `INSERT INTO {schema}.node_registry (node_id, endpoint, heartbeat, stats) VALUES (${row})` });
  await becomes("odd", "healthy");
  const value = (key) => card("odd").locator(".field", { has: page.locator("dt", { hasText: new RegExp(`^${key}$`) }) }).locator(".value");
  const expected = { quarks_bytes: "2 KiB", unheard_of: "<b>bold</b>", spin_ratio: "25 %", delay_us: "1.5 ms", list: "1, two", nothing: "null", yes: "true", cpu: "12.3 %", huge: "-1.00e+300", script: "javascript:alert(1)" };
  for (const [key, text] of Object.entries(expected)) assert.equal(await value(key).textContent(), text);
  assert.deepEqual(await card("odd").locator("a").evaluateAll((all) => all.map(({ href }) => href)), ["https://example.org/x"]);
  await card("odd").locator("summary", { hasText: "nested" }).press("Enter");
  await card("odd").locator("summary", { hasText: "deeper" }).press("Enter");
  assert.equal(await value("deepest_ms").textContent(), "7 ms");
  await inEveryLook(isAccessible);
  await outside({ sql: "DELETE FROM {schema}.node_registry WHERE node_id = 'odd'" });
  await shows("one", "two", "three");
});

test("everything can be done by keyboard, and what happens is said", async () => {
  const fold = page.getByRole("button", { name: "Fold all" });
  await fold.focus();
  await page.keyboard.press("Enter");
  assert.equal(await page.locator(".body:visible").count(), 0);
  await page.getByRole("button", { name: "numbers of two" }).press("Enter");
  assert.equal(await page.locator(".body:visible").count(), 1);
  assert.deepEqual(
    await page.locator(".toggle").evaluateAll((all) => all.map((button) => button.getAttribute("aria-expanded"))),
    ["false", "true", "false"],
  );
  await page.getByRole("button", { name: "Unfold all" }).press("Enter");
  assert.equal(await page.locator(".body:visible").count(), 3);
  assert.match(await page.locator("#news").textContent(), /odd has left/);
});

test("a link is drawn as direct only if the latest words of both ends say so", async () => {
  const direct = await page.evaluate(async () => {
    const { links } = await import("/admin/mesh.js");
    const node = (id, age, peers) => ({ node_id: id, heartbeat_age_ms: age, stats: { mesh: { peers } } });
    const [up, down] = [{ ready: true, rtt_us: 100 }, { ready: false }];
    const isDirect = (one, other) => links([one, other])[0].isDirect;
    return {
      linked: isDirect(node("a", 10, { b: up }), node("b", 20, { a: up })),
      killed: isDirect(node("a", 10, {}), node("b", 20_000, { a: up })),
      oneWay: isDirect(node("a", 10, { b: up }), node("b", 20, { a: down })),
      newcomer: isDirect(node("a", 9_000, {}), node("b", 10, { a: up })),
      strangers: isDirect(node("a", 10, {}), node("b", 20, {})),
    };
  });
  assert.deepEqual(direct, { linked: true, killed: false, oneWay: false, newcomer: true, strangers: false });
});

test("b114 a page of another origin can neither read with the cookie nor end the session", async () => {
  const foreign = await context.newPage();
  // Another port of the same host is of the same site: the browser does send the cookie there.
  await foreign.goto(`${other.url}/livez`);
  const outcomes = await foreign.evaluate(async (url) => {
    const outcome = (path, options) => fetch(url + path, { credentials: "include", ...options }).then((r) => r.type, () => "refused");
    return [
      await outcome("/admin/stream"),
      await outcome("/admin/session"),
      await outcome("/admin/logout", { method: "POST" }),
      await outcome("/admin/logout", { method: "POST", mode: "no-cors" }),
      await new Promise((resolve) => {
        const source = new EventSource(`${url}/admin/stream`, { withCredentials: true });
        source.onmessage = source.onopen = () => resolve("open");
        source.onerror = () => resolve("refused");
      }),
    ];
  }, watched.url);
  assert.deepEqual(outcomes, ["refused", "refused", "refused", "opaque", "refused"]);
  await foreign.close();
  await page.reload();
  await shows("one", "two", "three");
});

test("b012 a killed node is suspect, then stale, by the thresholds that the cluster has, and then leaves", async () => {
  const { timing } = await api("/api/admin/cluster");
  assert.deepEqual(timing, { heartbeat_interval_ms: 500, stale_threshold_ms: 4000 });
  const judged = await page.evaluate(async () => {
    const { judge } = await import("/admin/state.js");
    const slow = { heartbeat_interval_ms: 60_000, stale_threshold_ms: 240_000 };
    return [90, 200, 240].map((age) => judge({ heartbeat_age_ms: age * 1000, stats: {} }, slow));
  });
  assert.deepEqual(judged, ["healthy", "suspect", "stale"]);

  process.kill(killed.pid, "SIGKILL");
  await becomes("three", "suspect");
  assert.ok((await heartbeat("three")) < 4.1);
  await becomes("three", "stale");
  assert.ok((await heartbeat("three")) >= 4);
  await isAccessible("with a stale node");
  assert.match(await page.locator("#counts").textContent(), /3 nodes.*1 stale/);
  await page.locator("#news", { hasText: "three is stale" }).waitFor();
  await shows("one", "two");
  assert.match(await page.locator("#news").textContent(), /three has left/);
});

test("a new node appears by itself, is seen draining, and leaves", async () => {
  const four = await outside({ start: "four" });
  hosts.push(new URL(four.url).host);
  await shows("one", "two", "four");
  await becomes("four", "healthy");
  if (EPHEMERAL === "mesh") {
    await page.locator("#mesh .link.around").nth(1).waitFor({ state: "attached" });
    await page.locator("#mesh .link:not(.around)").waitFor({ state: "attached" });
    assert.match(await page.locator("#mesh .trip").textContent(), /^[\d.]+ (µs|ms)$/);
    assert.match(await page.locator("#caption").textContent(), /^1 direct link among 3 nodes; round trip .*; 2 pairs through PostgreSQL \(dashed\)\.$/);
    await inEveryLook(isAccessible);
  } else {
    assert.ok(await page.locator("#mesh").isHidden(), "there is a picture of nothing");
  }
  // A request that is not finished keeps it from ending at once.
  const { hostname, port } = new URL(four.url);
  const request = connect(port, hostname);
  request.on("error", () => {});
  request.write(`POST /api/channels/x/events HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${ADMIN_TOKEN}\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{`);
  // Accepted after it.
  assert.equal(await (await fetch(`${four.url}/livez`)).text(), "ok\n");
  process.kill(four.pid, "SIGTERM");
  await becomes("four", "draining");
  request.end();
  await shows("one", "two");
});

test("b036 while the registry cannot be read, the last list stays and says how old it is", async () => {
  assert.deepEqual(page.complaints, []);
  await outside({ sql: "ALTER TABLE {schema}.node_registry RENAME TO elsewhere" });
  const trouble = page.locator("#trouble", { hasText: "node_registry" });
  await trouble.waitFor();
  assert.match(await trouble.textContent(), /This is how it was .* ago\.$/);
  assert.deepEqual(await ids(), ["one", "two"]);
  assert.equal(await page.locator("#status").textContent(), "not live");
  await isAccessible("in trouble");
  if (process.env.SCREENSHOTS) await page.screenshot({ path: `${process.env.SCREENSHOTS}/trouble.png` });
  // Also for whoever looks again, or just now.
  await page.reload();
  await trouble.waitFor();
  await shows("one", "two");
  await outside({ sql: "ALTER TABLE {schema}.elsewhere RENAME TO node_registry" });
  await page.locator("#status[data-state=live]").waitFor();
  assert.ok(await page.locator("#trouble").isHidden());
});

test("signing out ends it, and nothing that was shown remains", async () => {
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("Admin token").waitFor();
  assert.deepEqual(await ids(), []);
  assert.deepEqual(await context.cookies(), []);
  await page.reload();
  await page.getByLabel("Admin token").fill(ADMIN_TOKEN);
  await page.keyboard.press("Enter");
  await shows("one", "two");
  // Neither a complaint nor a word to another host so far.
  assert.deepEqual(page.complaints, []);
  assert.deepEqual(page.urls.filter((url) => new URL(url).host !== hosts[0]), []);
});

test("when the node behind the page is gone, the page stays and says so", async () => {
  process.kill(watched.pid, "SIGKILL");
  await page.locator("#trouble", { hasText: "This node does not answer; trying again. This is how it was" }).waitFor();
  assert.deepEqual(await ids(), ["one", "two"]);
  const unexpected = page.complaints.filter((text) => !/net::ERR_/.test(text));
  assert.deepEqual(unexpected, []);
});
