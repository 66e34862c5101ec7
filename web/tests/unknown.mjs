// An email with an unknown outcome: the page shows the evidence, and a person settles it. So does a lost claim.
import assert from "node:assert/strict";
import { api, eventually, SLOW_MS, withBrowser } from "./browser.mjs";

const send = (subject) => api("POST", "/v1/emails", { from: "agent@mailonce.test", to: ["unknown@sandbox.mailonce.test"], subject, text: "Did it arrive?" }, { "idempotency-key": subject });
/** How far the attempt got when its answer was lost. */
const LOST_WHILE = "waiting for the final answer";
const openQuestions = async (reason) => (await api("GET", `/v1/escalations?state=open&reason=${reason}`)).data;

const settleEmail = async ({ page, goto, axe, picture }) => {
  const { id } = await send("Invoice 4821");
  await goto("/needs-you");
  await page.getByRole("link", { name: "Invoice 4821" }).waitFor({ timeout: SLOW_MS });
  const counts = await page.getByRole("group", { name: "Show" }).getByRole("button").allInnerTexts();
  assert.deepEqual(counts.map((text) => Number(/\d+$/.exec(text.trim())?.[0] ?? 0)), [1, 1, 0, 0], `all, unknown, held, asked: ${counts}`);
  await axe();
  await picture("unknown-queue");
  await page.getByRole("link", { name: "See the evidence and settle" }).click();
  await page.getByRole("heading", { name: "Settle it" }).waitFor();
  const text = await page.locator("main").innerText();
  for (const part of ["Attempt 1", "Next hop said", "Message-ID", "The recipient may get the email twice", "It arrived", "Send it again", "Give up"]) {
    assert.ok(text.includes(part), `${part}: ${text}`);
  }
  const steps = page.locator(".needs-you-attempt ol li");
  assert.deepEqual(await steps.allInnerTexts(), ["✓ connecting", "✓ greeting", "✓ naming the sender", "✓ naming the recipient", "✓ sending the content", LOST_WHILE]);
  assert.equal(await page.locator(".needs-you-attempt [aria-current=step]").innerText(), LOST_WHILE);
  await axe();
  await picture("unknown-settle", { fullPage: true });
  await page.getByLabel("How you know").fill("Eve confirmed it");
  // By keyboard alone: 1 focuses the first choice, Enter takes it.
  await page.getByRole("heading", { level: 1 }).focus();
  await page.keyboard.press("1");
  await page.keyboard.press("Enter");
  const email = await eventually(async () => {
    const current = await api("GET", `/v1/emails/${id}`);
    return current.state === "sent" && current;
  }, "the email is sent");
  assert.ok(JSON.stringify(email.timeline).includes("Eve confirmed it"));
};

/** On the page of the email itself, an admin settles without a question. */
const settleOnEmailPage = async ({ page, goto, picture }) => {
  const { id } = await send("Invoice 4822");
  await goto(`/emails/${id}`);
  await page.getByRole("button", { name: "Give up" }).waitFor({ timeout: SLOW_MS });
  await picture("unknown-email", { fullPage: true });
  await page.locator(".email-waterfall li.attempt").getByText(new RegExp(`unknown by \\S+ while ${LOST_WHILE}`)).waitFor();
  // The sandbox loses the answer to the second copy, too.
  const attempts = async () => (await api("GET", `/v1/emails/${id}`)).handoffs.flatMap((handoff) => handoff.attempts).length;
  assert.equal(await attempts(), 1);
  await page.getByRole("button", { name: "Send it again" }).click();
  await eventually(async () => (await attempts()) === 2 && (await api("GET", `/v1/emails/${id}`)).state === "unknown", "the second attempt", SLOW_MS);
  await page.getByRole("button", { name: "Give up" }).click();
  await page.locator(".chip", { hasText: "abandoned" }).first().waitFor();
  assert.equal((await api("GET", `/v1/emails/${id}`)).state, "abandoned");
};

const settleClaim = async ({ page, goto, axe, picture }) => {
  const claim = await api("POST", "/v1/claims", { key: "charge-4821", lease_s: 1, label: "billing-7" }, { "idempotency-key": "charge-4821" });
  const [question] = await eventually(async () => {
    const open = await openQuestions("claim_unknown");
    return open.length > 0 && open;
  }, "a question about the claim", SLOW_MS);
  await goto(`/needs-you/${question.id}`);
  await page.getByText("billing-7", { exact: true }).waitFor();
  await axe();
  await picture("unknown-claim");
  await page.getByRole("button", { name: "It happened" }).click();
  assert.equal((await eventually(async () => {
    const current = await api("GET", `/v1/claims/${claim.id}`);
    return current.state !== "unknown" && current;
  }, "the claim is settled")).state, "completed");
};

await withBrowser(async (browser) => {
  await settleEmail(browser);
  await settleOnEmailPage(browser);
  await settleClaim(browser);
});

/** A short question is shown once, and only an agent that asked reads the words of the answer. */
const question = async ({ page, goto }) => {
  const words = "May I refund order 4821?";
  const { id } = await api("POST", "/v1/escalations", { question: words });
  await goto(`/needs-you/${id}`);
  await page.getByText("The agent reads them with the answer.").waitFor();
  assert.equal(await page.locator("main").getByText(words).count(), 1);
  const asked = await api("GET", `/v1/escalations/${id}`);
  await page.route(`**/v1/escalations/${id}`, (route) => route.fulfill({ json: { ...asked, reason: "orphaned", about: { transport: "old-relay" } } }));
  await page.reload();
  await page.getByText("They stay with the decision.").waitFor();
};

/** A question that is asked after the page has loaded and before the stream of events is open. */
const askedMeanwhile = async ({ page, goto }) => {
  let openStream = () => undefined;
  const mayOpen = new Promise((resolve) => (openStream = resolve));
  await page.route("**/v1/events/stream*", (route) => mayOpen.then(() => route.continue()));
  await goto("/needs-you");
  await page.getByRole("heading", { name: "Nothing waits for you" }).waitFor();
  await api("POST", "/v1/escalations", { question: "May I refund order 4822?" });
  // A stream that opens at once has missed nothing.
  setTimeout(openStream, 1000);
  await page.getByText("May I refund order 4822?").waitFor();
};

await withBrowser(async (browser) => {
  await askedMeanwhile(browser);
  await question(browser);
});
