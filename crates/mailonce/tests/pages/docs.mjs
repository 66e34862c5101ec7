// Opens the API reference in Chromium. Started by scripts/test-pages.
import assert from "node:assert/strict";
import { createRequire } from "node:module";

const { chromium } = createRequire(process.env.PLAYWRIGHT_FROM)("playwright-core");
const { CHROMIUM, MAILONCE_URL, MAILONCE_API_KEY } = process.env;

const browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox"] });
try {
  const page = await browser.newPage({ viewport: { width: 1400, height: 1000 } });
  const requests = [];
  const errors = [];
  page.on("request", (request) => requests.push(request.url()));
  page.on("console", (message) => message.type() === "error" && errors.push(message.text()));
  page.on("pageerror", (error) => errors.push(String(error)));
  await page.goto(`${MAILONCE_URL}/docs#tag/emails/GET/v1/emails`);

  // It shows the operations in the order of the document, not of the alphabet.
  await page.getByRole("heading", { name: "mailonce", exact: true }).first().waitFor();
  const tags = await (await fetch(`${MAILONCE_URL}/openapi.json`)).json().then(({ tags }) => tags.map(({ name }) => name));
  const text = await page.locator("aside, nav").first().innerText();
  const found = tags.map((name) => text.indexOf(`\n${name}\n`));
  assert.ok(!found.includes(-1), `a tag is missing: ${text}`);
  assert.deepEqual(found, [...found].sort((a, b) => a - b), `${tags} in ${text}`);
  assert.ok(text.includes("Send an email once."), text);

  // It tries a call against the server that serves it, with the API key that the reader gives.
  await page.getByPlaceholder("Token").first().fill(MAILONCE_API_KEY);
  await page.getByRole("button", { name: /^Test Request.*\/v1\/emails\)?$/ }).first().click();
  const answered = page.waitForResponse((response) => new URL(response.url()).pathname === "/v1/emails");
  await page.getByRole("dialog").getByRole("button", { name: /^Send/ }).first().click();
  const response = await answered;
  assert.equal(response.status(), 200);
  assert.equal(response.request().headers()["authorization"], `Bearer ${MAILONCE_API_KEY}`);

  const elsewhere = requests.filter((url) => !/^(data|blob):/.test(url) && !url.startsWith(`${MAILONCE_URL}/`));
  assert.deepEqual(elsewhere, [], "it loads something from another host");
  assert.deepEqual(errors, []);
  console.log(`/docs: ${tags.length} tags, ${requests.length} requests, one call tried`);
} finally {
  await browser.close();
}
