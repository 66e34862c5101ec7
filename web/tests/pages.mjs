// Every page of the navigation, empty and with mail, light and dark, on a desktop and a phone: no console error, no
// policy violation, no serious fault for axe, no sideways scrolling.
import assert from "node:assert/strict";
import { api, fitsWidth, PHONE, withBrowser } from "./browser.mjs";

const seed = async () => {
  const send = (key, to, subject) => api("POST", "/v1/emails", { from: "agent@mailonce.test", to: [to], subject, text: `${subject}.` }, { "idempotency-key": key });
  await api("POST", "/v1/rules", { name: "invoices", direction: "outbound", actions: [{ type: "approve" }], match: { conditions: [{ field: "subject", operator: "contains", value: "Invoice" }] } });
  for (const key of ["order-1", "order-1", "order-2"]) await send(key, "eve@example.com", `Your ${key}`);
  await send("invoice-1", "eve@example.com", "Invoice 1");
  await send("refused-1", "refuse@sandbox.mailonce.test", "Refused");
  await send("unknown-1", "unknown@sandbox.mailonce.test", "Unknown");
  await api("POST", "/v1/escalations", { question: "May I refund order 4821?" });
};

/** Opens each page by a click, as a person does. */
const visitAll = (check) => async (browser) => {
  const { page, goto } = browser;
  await goto("/");
  await page.getByRole("heading", { level: 1 }).waitFor();
  const paths = await page.locator("nav[aria-label=Pages] a:not([target])").evaluateAll((links) => links.map((link) => link.getAttribute("href")));
  for (const path of paths) {
    const menu = page.getByRole("button", { name: /^Menu/ });
    if (await menu.isVisible()) await menu.click();
    await page.locator(`nav[aria-label=Pages] a[href="${path}"]`).click();
    await page.waitForURL((url) => url.pathname === path);
    await page.locator("main h1").waitFor();
    await page.locator(".loading").first().waitFor({ state: "detached" });
    assert.equal(await page.locator("h1").count(), 1, `${path} has one h1`);
    await fitsWidth(page);
    await check(browser, path.replaceAll("/", "-"));
  }
};

const lightAndDark = (name) => async ({ page, axe, picture }, path) => {
  await axe();
  await picture(`page-${name}-light${path}`);
  await page.emulateMedia({ colorScheme: "dark", reducedMotion: "reduce" });
  await axe(["color-contrast"]);
  await picture(`page-${name}-dark${path}`);
  await page.emulateMedia({ colorScheme: "light", reducedMotion: "reduce" });
};

await withBrowser(visitAll(lightAndDark("empty")));
await seed();
await withBrowser(visitAll(lightAndDark("full")));
await withBrowser(visitAll(async ({ picture }, path) => picture(`page-phone${path}`)), { viewport: PHONE, colorScheme: "dark" });
