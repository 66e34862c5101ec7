// Every page, empty and full, in light and dark, on a desktop and a phone: no console error, no policy violation, no
// serious accessibility fault, nothing wider than the window, and everything reachable by keyboard, with a visible focus. Wide
// screens, too.
//
//   SCREENSHOTS=/tmp/pictures npm test -- screenshots       # also writes pictures of the full pages, and of some empty ones
//   ONLY=stops,endpoint                                     # some pages
import assert from "node:assert/strict";
import { mkdir } from "node:fs/promises";
import { api, DESKTOP, fitsWidth, PHONE, withBrowser } from "./browser.mjs";
import { seed } from "./seed.mjs";

const { SCREENSHOTS, ONLY = "" } = process.env;
const SECTIONS = ["connect", "domains", "transports", "api-keys", "rules", "people", "metrics", "audit", "settings"];
const LISTS = {
  overview: "/", "needs-you": "/needs-you", live: "/live", emails: "/emails", duplicates: "/duplicates", keys: "/keys", inboxes: "/inboxes", threads: "/threads",
  stops: "/stops", webhooks: "/webhooks", ...Object.fromEntries(SECTIONS.map((name) => [`setup-${name}`, `/setup/${name}`])),
};
const details = (ids) => ({
  approve: `/needs-you/${ids.approval}`, unknown: `/needs-you/${ids.unknown}`, question: `/needs-you/${ids.asked}`, email: `/emails/${ids.email}`, key: "/keys/order-4821-confirmation",
  inbox: `/inboxes/${ids.inbox}`, message: `/messages/${ids.message}`, thread: `/threads/${ids.thread}`, endpoint: `/webhooks/${ids.endpoint}?state=pending`,
});
/** The checks alone need each size and each color scheme once. */
const VIEWS = [["desktop", "light"], ["phone", "dark"], ...(SCREENSHOTS ? [["desktop", "dark"], ["phone", "light"]] : [])];
const wanted = (pages) => Object.entries(pages).filter(([name]) => !ONLY || ONLY.split(",").includes(name));

const settle = async (page) => {
  await page.locator("main h1").waitFor();
  await page.waitForFunction(() => document.querySelectorAll("main .loading").length === 0);
  // Lists measure their rows after the first frame.
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => requestAnimationFrame(done)))));
};

const WIDE = [{ width: 1920, height: 1080 }, { width: 2560, height: 1440 }];
const MAX_TEXT_PX = 76 * 16;

/** On a wide screen the page stays readable: its parts are not wider than a limit, and are in the middle. */
const checkWide = async (page, name) => {
  for (const size of WIDE) {
    await page.setViewportSize(size);
    await fitsWidth(page);
    const parts = await page.locator("main > *").evaluateAll((all) => all.map((part) => {
      const [own, outer] = [part.getBoundingClientRect(), part.parentElement.getBoundingClientRect()];
      return { width: own.width, shift: Math.abs(own.left - outer.left - (outer.right - own.right)) };
    }));
    for (const { width, shift } of parts) assert.ok(width <= MAX_TEXT_PX + 1 && shift <= 2, `${name}, ${size.width} px: ${width} px wide, ${shift} px beside the middle`);
  }
  await page.setViewportSize(DESKTOP);
};

/** Presses Tab until the focus leaves the page. Every action must get it once and show it, and it must not stay anywhere. */
const checkKeyboard = async (page, name) => {
  await page.evaluate(() => {
    document.activeElement?.blur();
    const visible = (element) => element.checkVisibility() && !element.disabled && element.tabIndex >= 0;
    const all = [...document.querySelectorAll("main a[href], main button, main input, main select, main textarea, main summary")];
    globalThis.unreached = new Set(all.filter((element) => visible(element)));
  });
  const count = await page.evaluate(() => globalThis.unreached.size);
  let stuck = 0;
  for (let step = 0; step < count * 2 + 80; step += 1) {
    await page.keyboard.press("Tab");
    const { left, same, unmarked } = await page.evaluate(() => {
      const active = document.activeElement ?? document.body;
      const isDrawn = (style) => (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0) || style.boxShadow !== "none";
      const after = getComputedStyle(active, "::after");
      // The document of a frame draws the focus inside it.
      const marked = active === document.body || active.tagName === "IFRAME" || isDrawn(getComputedStyle(active)) || (after.content !== "none" && isDrawn(after));
      const same = active === globalThis.lastActive && active !== document.body;
      globalThis.lastActive = active;
      globalThis.unreached.delete(active);
      return { left: globalThis.unreached.size, same, unmarked: marked ? null : active.outerHTML.slice(0, 120) };
    });
    assert.equal(unmarked, null, `${name}: the focus is not visible`);
    stuck = same ? stuck + 1 : 0;
    assert.ok(stuck < 3, `${name}: Tab does not leave an element`);
    if (left === 0) return;
  }
  const left = await page.evaluate(() => [...globalThis.unreached].filter((element) => element.isConnected).map((element) => element.outerHTML.slice(0, 120)));
  assert.deepEqual(left, [], `${name}: not reachable with Tab`);
};

/** Fails when two labels of an axis lie on each other. */
const checkAxes = async (page) => {
  const overlaps = await page.locator(".chart-axis").evaluateAll((axes) => axes.flatMap((axis) => {
    const labels = [...axis.querySelectorAll("span")].map((label) => ({ text: label.textContent, ...label.getBoundingClientRect().toJSON() }));
    const meets = (one, other) => one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom;
    return labels.flatMap((one, index) => labels.slice(index + 1).filter((other) => meets(one, other)).map((other) => `${one.text} and ${other.text}`));
  }));
  assert.deepEqual(overlaps, [], "labels of a chart lie on each other");
};

const visit = async ({ page, goto, axe }, name, path, after) => {
  try {
    await goto(path);
    await settle(page);
    await fitsWidth(page);
    await checkAxes(page);
    await axe();
    await after?.();
  } catch (error) {
    throw new Error(`${name} (${path})`, { cause: error });
  }
};

/** Empty pages with a picture, and its name. */
const EMPTY = { overview: "first-run", emails: "emails-empty" };

/** What makes the picture of a page say more. */
const PREPARE = {
  // The button waits until the email was shown for a moment.
  approve: (page) => page.waitForFunction(() => !document.querySelector(".needs-you-decision button").disabled),
  endpoint: (page) => page.locator("summary").filter({ hasText: "attempts" }).first().click(),
  "setup-metrics": async (page) => {
    if (!SCREENSHOTS) return;
    for (let round = 1; round <= 5; round += 1) {
      await sendBurst(round);
      await page.waitForTimeout(3000);
    }
  },
};

const sendBurst = async (round) => {
  const one = (number) => api("POST", "/v1/emails", { from: "agent@mailonce.test", to: [`customer-${Date.now()}-${number}@example.org`], subject: `Report ${number}`, text: `Report ${number}` }, { "idempotency-key": `report-${Date.now()}-${number}` });
  const repeat = () => api("POST", "/v1/emails", { from: "agent@mailonce.test", to: ["radia@example.org"], subject: "Daily report", text: "All is well." }, { "idempotency-key": "daily-report" });
  await Promise.all([...Array.from({ length: round }, (_, index) => one(index)), ...Array.from({ length: round * 2 }, repeat)]);
};

const prepareView = async (page, size, colorScheme) => {
  await page.emulateMedia({ colorScheme });
  await page.setViewportSize(size === "desktop" ? DESKTOP : PHONE);
};

const visitFull = async (tools, pages, size, colorScheme) => {
  await prepareView(tools.page, size, colorScheme);
  for (const [name, path] of pages) {
    await visit(tools, `${name}, ${size}, ${colorScheme}`, path, async () => {
      await PREPARE[name]?.(tools.page);
      await tools.picture(`${name}-${size}-${colorScheme}`);
      if (size !== "desktop" || colorScheme !== "light") return;
      await checkWide(tools.page, name);
      await checkKeyboard(tools.page, name);
    });
  }
};

if (SCREENSHOTS) await mkdir(SCREENSHOTS, { recursive: true });
await withBrowser(async (tools) => {
  for (const [size, colorScheme] of VIEWS) {
    await prepareView(tools.page, size, colorScheme);
    for (const [name, path] of wanted(LISTS)) {
      await visit(tools, `${name}, empty, ${size}, ${colorScheme}`, path, () => EMPTY[name] && tools.picture(`${EMPTY[name]}-${size}-${colorScheme}`));
    }
  }
  const ids = await seed();
  const pages = wanted({ ...LISTS, ...details(ids) });
  // The metrics come last, because they need more mail than the other pictures should show.
  for (const group of [pages.filter(([name]) => name !== "setup-metrics"), pages.filter(([name]) => name === "setup-metrics")]) {
    for (const [size, colorScheme] of VIEWS) await visitFull(tools, group, size, colorScheme);
  }
  ids.close();
});
