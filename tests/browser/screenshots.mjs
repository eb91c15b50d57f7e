// Pictures of the dashboard, to be looked at: light and dark, desktop and phone. Not a test.
//
//     NODE_URL=http://127.0.0.1:4000 node screenshots.mjs DIRECTORY [PREFIX]
//
// CHROMIUM: the browser. ADMIN_TOKEN: to sign in, where that is needed. WATCH: seconds to collect numbers before (0).
// ASSETS: a directory to take the page's files from instead of the node's, while working on them.

import { readFileSync } from "node:fs";
import { chromium } from "playwright-core";

const [directory, prefix = ""] = process.argv.slice(2);
const { NODE_URL, CHROMIUM = "/usr/bin/chromium", ADMIN_TOKEN, WATCH = "0", ASSETS } = process.env;
const desktop = { width: 1280, height: 860 };
const phone = { width: 390, height: 844 };
const looks = { "desktop-light": [desktop, "light"], "desktop-dark": [desktop, "dark"], "phone-light": [phone, "light"], "phone-dark": [phone, "dark"] };

const browser = await chromium.launch({ executablePath: CHROMIUM, args: process.getuid() === 0 ? ["--no-sandbox"] : [] });

async function open(viewport, colorScheme) {
  const page = await browser.newPage({ viewport, colorScheme, deviceScaleFactor: viewport === phone ? 2 : 1, reducedMotion: "reduce" });
  page.on("console", (message) => message.type() === "error" && console.error(message.text()));
  page.on("pageerror", (error) => console.error(error));
  if (ASSETS) {
    await page.route(/\/admin(\/\w+\.(js|css))?$/, async (route) => {
      const path = new URL(route.request().url()).pathname.replace(/^\/admin\/?/, "") || "index.html";
      const response = await route.fetch().catch(() => undefined);
      const types = { js: "text/javascript", css: "text/css", html: "text/html; charset=utf-8" };
      const headers = response?.ok() ? response.headers() : { "content-type": types[path.split(".").at(-1)] };
      await route.fulfill({ status: 200, headers, body: readFileSync(`${ASSETS}/${path}`) });
    });
  }
  await page.goto(`${NODE_URL}/admin`);
  if (ADMIN_TOKEN) {
    if (process.env.LOGIN) await page.screenshot({ path: `${directory}/${prefix}login-${colorScheme}-${viewport.width}.png` });
    await page.getByLabel("Admin token").fill(ADMIN_TOKEN);
    await page.keyboard.press("Enter");
  }
  await page.locator(".card").first().waitFor();
  return page;
}

const pages = await Promise.all(Object.values(looks).map((look) => open(...look)));
await new Promise((resolve) => setTimeout(resolve, Number(WATCH) * 1000));
for (const [i, name] of Object.keys(looks).entries()) {
  const path = `${directory}/${prefix}${name}`;
  await pages[i].screenshot({ path: `${path}.png` });
  if (process.env.WHOLE) await pages[i].screenshot({ path: `${path}-whole.png`, fullPage: true });
}
await browser.close();
