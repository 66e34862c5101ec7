// The list: filters, search, saved views, the keyboard, live changes, and few elements for many rows.
import assert from "node:assert/strict";
import { api, eventually, fitsWidth, PHONE, SLOW_MS, withBrowser } from "./browser.mjs";

const COUNT = 300;
const mail = (number) => ({ from: "agent@mailonce.test", to: [`customer${number}@example.com`], subject: `Order ${number}`, text: `Your order ${number} has left ${number % 2 ? "Berlin" : "Paris"}.` });

await api("POST", "/v1/emails/batch", Array.from({ length: COUNT }, (_, index) => mail(index + 1)), { "idempotency-key": "orders" });
await api("POST", "/v1/emails", { ...mail(0), to: ["refuse@sandbox.mailonce.test"], subject: "Refused order" }, { "idempotency-key": "refused-1" });

const rows = (page) => page.getByRole("list", { name: "Emails" }).getByRole("listitem");

const scrollAndFilter = async ({ page, goto, axe, picture }) => {
  await goto("/emails");
  await page.getByRole("link", { name: "Refused order" }).waitFor();
  await axe();
  await picture("emails");
  await eventually(async () => {
    await page.evaluate(() => window.scrollTo(0, document.body.scrollHeight));
    return page.getByText("These are all.").isVisible();
  }, "the end of the list", SLOW_MS);
  await page.getByRole("link", { name: "Order 1", exact: true }).waitFor();
  assert.ok((await rows(page).count()) < 60, "only rows near the window exist");
  // The back button shows the same rows at the same place.
  const place = await page.evaluate(() => window.scrollY);
  await page.getByRole("link", { name: "Order 2", exact: true }).click();
  await page.getByRole("heading", { name: "Order 2", level: 1 }).waitFor();
  await page.goBack();
  await page.getByRole("link", { name: "Order 2", exact: true }).waitFor();
  assert.ok(Math.abs((await page.evaluate(() => window.scrollY)) - place) < 200, "the place in the list");
  await page.evaluate(() => window.scrollTo(0, 0));

  await page.getByRole("button", { name: "Failed", exact: true }).click();
  await eventually(async () => (await rows(page).count()) === 1, "one failed email");
  assert.ok(page.url().includes("state=failed"));
  await page.getByRole("button", { name: "All", exact: true }).click();
  await page.getByLabel("To", { exact: true }).fill("customer42@example.com");
  await eventually(async () => (await rows(page).allInnerTexts()).join().startsWith("Order 42"), "one recipient");
  await page.getByRole("button", { name: "Save view…" }).click();
  await page.getByLabel("Name").fill("Customer 42");
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await goto("/emails");
  await page.getByRole("button", { name: "Customer 42", exact: true }).click();
  await eventually(async () => (await rows(page).count()) === 1, "the saved view filters");
  await page.getByRole("button", { name: "Remove view Customer 42" }).click();
};

/** The list is asked for one key, and for the emails of a span of time. */
const keyAndTime = async ({ page, goto }) => {
  await goto("/emails");
  await page.getByLabel("Idempotency key", { exact: true }).fill("refused-1");
  await eventually(async () => (await rows(page).count()) === 1, "one key");
  assert.match(await rows(page).innerText(), /^Refused order/);
  const listed = page.waitForRequest((request) => new URL(request.url()).searchParams.has("since") && new URL(request.url()).pathname === "/v1/emails");
  await page.getByLabel("Accepted", { exact: true }).selectOption({ label: "Last hour" });
  const since = Date.parse(new URL((await listed).url()).searchParams.get("since"));
  const hoursAgo = (Date.now() - since) / 3_600_000;
  assert.ok(hoursAgo >= 1 && hoursAgo < 1.1, `${hoursAgo} hours ago`);
  await page.getByRole("link", { name: "Refused order" }).waitFor();
};

const searchAndKeys = async ({ page, goto, axe }) => {
  await goto("/emails");
  await page.getByRole("link", { name: "Refused order" }).waitFor();
  await page.keyboard.press("/");
  await page.keyboard.type("subject:\"Order 77\"");
  await eventually(async () => (await rows(page).count()) === 1, "one hit", 60_000);
  await axe();
  await page.getByLabel("Search").fill("nothing-has-this-word");
  await page.getByText("No email matches").waitFor();
  await page.getByRole("button", { name: "Clear the filter" }).click();
  await page.getByRole("link", { name: "Refused order" }).waitFor();
  await page.getByRole("heading", { level: 1 }).focus();
  for (const key of ["j", "j", "j", "k"]) await page.keyboard.press(key);
  const focused = await page.evaluate(() => document.activeElement?.textContent);
  assert.ok(focused.startsWith("Order"), `the second row has the focus: ${focused}`);
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: focused, level: 1 }).waitFor();
  await page.goBack();
  await page.getByRole("link", { name: "Refused order" }).waitFor();
};

const liveChanges = async ({ page, goto }) => {
  await goto("/emails");
  await page.getByRole("link", { name: "Refused order" }).waitFor();
  await page.locator(".stream.live").waitFor();
  await api("POST", "/v1/emails", mail(1000), { "idempotency-key": "order-1000" });
  await page.getByRole("button", { name: "1 new email: show" }).click();
  await page.getByRole("link", { name: "Order 1000" }).waitFor();
  await api("POST", "/v1/emails", mail(1000), { "idempotency-key": "order-1000" });
  await page.getByText("1× stopped").waitFor();
};

/** Titles are out of reach for keyboards, so a key changes the times of lists. */
const times = async ({ page, goto }) => {
  const shown = () => page.locator(".emails-time time").first().innerText();
  await goto("/emails");
  await page.getByRole("link", { name: "Order 1000" }).waitFor();
  assert.match(await shown(), /ago|now/);
  await page.keyboard.press("d");
  await eventually(async () => /^\d\d:\d\d:\d\d$|^[A-Z][a-z]{2} \d+, \d\d:\d\d$/.test(await shown()), "the time of day");
  await page.reload();
  await page.getByRole("link", { name: "Order 1000" }).waitFor();
  assert.doesNotMatch(await shown(), /ago|now/, "the choice is kept");
  await page.keyboard.press("d");
  await eventually(async () => /ago|now/.test(await shown()), "how long ago");
};

const actions = async ({ page, goto, axe }) => {
  const { id } = await api("POST", "/v1/emails", { ...mail(2000), scheduled_at: "in 2 hours" }, { "idempotency-key": "order-2000" });
  await goto(`/emails/${id}`);
  await page.getByRole("button", { name: "Cancel email" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Cancel email" }).click();
  await page.locator(".chip", { hasText: "cancelled" }).first().waitFor();
  await page.getByRole("button", { name: "Resend…" }).click();
  await page.getByLabel("Reason").fill("cancelled by mistake");
  await page.getByRole("dialog").getByRole("button", { name: "Resend" }).click();
  await page.getByText("Resend of", { exact: true }).waitFor();
  assert.notEqual(new URL(page.url()).pathname, `/emails/${id}`);
  for (const tab of ["Attempts", "Policy trace", "Timeline", "Raw"]) {
    await page.getByRole("tab", { name: tab }).click();
    await axe();
  }
};

/** A filter that matches nothing in a large ledger: the page asks before it reads on. The server's answers are simulated. */
const rareFilter = async ({ page, goto }) => {
  const answers = [];
  await page.route(/\/v1\/emails\?.*to=rare/, (route) => {
    answers.push(route.request().url());
    return route.fulfill({ json: { data: [], next_cursor: answers.length < 7 ? `part-${answers.length}` : null } });
  });
  await goto("/emails?to=rare%40example.com");
  await page.getByText("Nothing found so far").waitFor();
  assert.equal(answers.length, 5);
  await page.getByRole("button", { name: "Look further back" }).click();
  await page.getByText("No email matches").waitFor();
  assert.equal(answers.length, 7);
  assert.match(answers[5], /cursor=part-5/);
};

await withBrowser(async (browser) => {
  await scrollAndFilter(browser);
  await keyAndTime(browser);
  await searchAndKeys(browser);
  await liveChanges(browser);
  await times(browser);
  await actions(browser);
  await rareFilter(browser);
});
await withBrowser(async ({ page, goto, axe, picture }) => {
  await goto("/emails");
  await page.getByRole("link", { name: "Order 1000" }).waitFor();
  await fitsWidth(page);
  await axe();
  await picture("emails-phone-dark");
}, { viewport: PHONE, colorScheme: "dark" });
