// What all tests share: a signed-in Chromium that fails on console errors, policy violations and requests to other
// hosts, a client of the API, and the check with axe.
//
// Needs MAILONCE_URL, MAILONCE_SIGN_IN and MAILONCE_API_KEY (`tests/run.mjs` starts a server and sets them), and CHROMIUM
// unless Chromium is at /usr/bin/chromium. SCREENSHOTS is a folder for pictures.
import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";
import { withPalette } from "./png.mjs";

const { CHROMIUM = "/usr/bin/chromium", MAILONCE_URL, MAILONCE_API_KEY, MAILONCE_SIGN_IN, SCREENSHOTS } = process.env;
const AXE = createRequire(import.meta.url).resolve("axe-core/axe.min.js");

/** Long enough for a busy machine. Nothing waits that long unless it is broken. */
export const PATIENCE_MS = 30_000;
/** For what the server does by itself later: it gives up on a lost answer, retries a webhook, reads a huge mail. */
export const SLOW_MS = 120_000;

export const DESKTOP = { width: 1280, height: 800 };
export const PHONE = { width: 390, height: 844 };

/** Calls the API with the API key. Throws unless the status is 2xx. */
export const api = async (method, path, body, headers = {}) => {
  const response = await fetch(MAILONCE_URL + path, {
    method, body: body && JSON.stringify(body),
    headers: { authorization: `Bearer ${MAILONCE_API_KEY}`, "content-type": "application/json", ...headers },
  });
  const text = await response.text();
  assert.ok(response.ok, `${method} ${path}: ${response.status} ${text}`);
  return text ? JSON.parse(text) : undefined;
};

/** The link that the server printed works once; later tests of the same server get one for a new person. */
const newSignInLink = async () => {
  const person = await api("POST", "/v1/people", { name: `Test ${Date.now()}`, role: "admin", address: `test-${Date.now()}@example.com` });
  return (await api("POST", `/v1/people/${person.id}/sign-in-links`)).url;
};

const signIn = async (page, dashboard) => {
  const open = (link) => page.goto(dashboard + new URL(link).pathname);
  const first = await open(MAILONCE_SIGN_IN);
  if (first.status() !== 200) await open(await newSignInLink());
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.waitForURL((url) => !url.pathname.startsWith("/sign-in"));
};

/** Records what must not happen. `allow` are patterns of console errors that a test causes on purpose, `hosts` what may be called. */
const watchFaults = (page, hosts, allow) => {
  const faults = [];
  page.on("console", (message) => {
    const text = `${message.text()} ${message.location().url}`;
    if (message.type() === "error" && !allow.some((pattern) => pattern.test(text))) faults.push(text);
  });
  page.on("pageerror", (error) => faults.push(String(error.stack)));
  page.on("request", (request) => {
    if (!/^(data|blob|about):/.test(request.url()) && !hosts.some((host) => request.url().startsWith(host))) faults.push(`request to ${request.url()}`);
  });
  return faults;
};

/**
 * Runs `test({ page, context, dashboard, goto, picture, axe })` in a signed-in browser.
 * Options: `viewport`, `colorScheme`, `allow`, `signedIn` (true), `javaScriptEnabled` (true), `hosts` (other servers that the test uses).
 */
export const withBrowser = async (test, { viewport = DESKTOP, colorScheme = "light", allow = [], signedIn = true, javaScriptEnabled = true, hosts = [] } = {}) => {
  const browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox"] });
  try {
    const context = await browser.newContext({ viewport, colorScheme, javaScriptEnabled, permissions: ["clipboard-read", "clipboard-write"], reducedMotion: "reduce" });
    const page = await context.newPage();
    page.setDefaultTimeout(PATIENCE_MS);
    if (signedIn) await signIn(page, MAILONCE_URL);
    const faults = watchFaults(page, [MAILONCE_URL, ...hosts], allow);
    const goto = (path) => page.goto(MAILONCE_URL + path, { waitUntil: "load" });
    const picture = async (name, options = {}) => SCREENSHOTS && writeFile(`${SCREENSHOTS}/${name}.png`, withPalette(await page.screenshot(options)));
    await test({ page, context, dashboard: MAILONCE_URL, goto, picture, axe: (rules) => axe(page, rules) });
    assert.deepEqual(faults, [], "console errors, policy violations or requests to other hosts");
  } finally {
    await browser.close();
  }
};

/** Rules that axe calls moderate: all content is in a landmark, landmarks have names of their own, and the page has a heading. */
const isStructure = (id) => id === "region" || id === "page-has-heading-one" || id.startsWith("landmark-");

/** Fails when axe finds a serious or critical fault, or one in the structure of the page. `rules` limits the check, such as `["color-contrast"]`. */
const axe = async (page, rules) => {
  // Through the debugger, because the page's policy forbids scripts from elsewhere.
  if (!(await page.evaluate(() => "axe" in globalThis))) await page.evaluate(await readFile(AXE, "utf8"));
  const options = { iframes: false, resultTypes: ["violations"], ...(rules && { runOnly: rules }) };
  const { violations } = await page.evaluate((given) => globalThis.axe.run(document, given), options);
  const faults = violations.filter(({ id, impact }) => impact === "serious" || impact === "critical" || isStructure(id));
  const words = faults.map(({ id, nodes }) => `${id}: ${nodes.map((node) => `${node.target} (${node.failureSummary})`).join("; ")}`);
  assert.deepEqual(words, []);
};

/** Fails when the page is wider than the window. */
export const fitsWidth = async (page) =>
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth), "the page scrolls sideways");

/** Waits until `check` returns something truthy, and returns it. */
export const eventually = async (check, what, timeoutMs = PATIENCE_MS) => {
  const end = Date.now() + timeoutMs;
  for (;;) {
    const value = await check();
    if (value) return value;
    assert.ok(Date.now() < end, `${what}: not within ${timeoutMs} ms`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
};
