// By keyboard alone: what people do on each page is done with Tab, Enter and typing. The phone's menu and the dialogs open
// with Enter, keep Tab inside, end with Escape, and give the focus back to the button that opened them.
import assert from "node:assert/strict";
import { api, eventually, PHONE, withBrowser } from "./browser.mjs";
import { deliver } from "./smtp.mjs";

const DIALOGS = [
  ["/inboxes", "Create inbox…"], ["/stops", "Stop: Inbox"], ["/stops", "Add budget…"], ["/webhooks", "Add endpoint…"], ["/setup/domains", "Add domain…"],
  ["/setup/api-keys", "Create API key…"], ["/setup/rules", "Add rule…"], ["/setup/people", "Add person…"],
];

const focusedText = (page) => page.evaluate(() => document.activeElement?.getAttribute("aria-label") ?? document.activeElement?.textContent);
const isInside = (page) => page.evaluate(() => Boolean(document.activeElement?.closest("dialog")) || document.activeElement === document.body);

const dialog = async ({ page, goto }, path, name) => {
  await goto(path);
  const button = page.getByRole("button", { name });
  // A page that has just been opened may move the focus to its heading.
  await eventually(async () => {
    await button.focus();
    return button.evaluate((element) => element === document.activeElement);
  }, `${path}: ${name} takes the focus`);
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").waitFor();
  for (let step = 0; step < 30; step += 1) {
    assert.ok(await isInside(page), `${path}: Tab leaves the dialog at ${await focusedText(page)}`);
    await page.keyboard.press("Tab");
  }
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await eventually(() => button.evaluate((element) => element === document.activeElement), `${path}: the focus is back at ${name}`);
};

/** Goes to a control with Tab alone. A page has fewer controls than this has steps. */
const tabTo = async (page, control) => {
  await control.waitFor();
  for (let step = 0; step < 150; step += 1) {
    if (await control.evaluate((element) => element === document.activeElement)) return;
    await page.keyboard.press("Tab");
  }
  assert.fail(`Tab does not reach ${control}`);
};
const press = async (page, control) => {
  await tabTo(page, control);
  await page.keyboard.press("Enter");
};
const type = async (page, control, text) => {
  await tabTo(page, control);
  await page.keyboard.press("Control+A");
  await page.keyboard.insertText(text);
};

const storm = async ({ page, goto }) => {
  await goto("/");
  await press(page, page.getByRole("button", { name: "Send it 50 times" }));
  await page.getByText("duplicates stopped").waitFor();
};

const stopAndResume = async ({ page, goto }) => {
  const dialog = page.getByRole("dialog");
  await goto("/stops");
  await press(page, page.getByRole("button", { name: "Stop: Inbox" }));
  await type(page, dialog.getByLabel("Reason"), "a loop");
  await page.keyboard.press("Enter");
  await page.getByText("in force").waitFor();
  await press(page, page.getByRole("button", { name: "Resume…" }));
  await press(page, dialog.getByRole("button", { name: "Resume", exact: true }));
  await page.getByText("in force").waitFor({ state: "detached" });
};

const mail = { from: "agent@mailonce.test", to: "eve@example.com", subject: "Order 1", text: "Thank you." };

/** Nobody listens at port 9, so the notice waits for its next attempt. */
const replay = async ({ page, goto }) => {
  const { id } = await api("POST", "/v1/endpoints", { url: "http://127.0.0.1:9/hooks", events: ["email.accepted"] });
  await api("POST", "/v1/emails", mail, { "idempotency-key": "order-1" });
  const notice = await eventually(async () => (await api("GET", `/v1/endpoints/${id}/notices`)).data.find(({ attempt_count: count }) => count > 0), "the first attempt");
  await goto(`/webhooks/${id}`);
  const row = page.locator("details").filter({ hasText: "email.accepted" });
  await press(page, row.locator("summary"));
  await press(page, row.getByRole("button", { name: "Replay" }));
  await eventually(async () => (await api("GET", `/v1/endpoints/${id}/notices`)).data[0].attempt_count > notice.attempt_count, "the replay");
};

const takeCode = async ({ page, goto }) => {
  await deliver({ from: "no-reply@shop.example", raw: "From: no-reply@shop.example\nTo: agent@mailonce.test\nSubject: Sign in\nMessage-ID: <code@shop.example>\n\nYour verification code is 402625.\n" });
  const message = await eventually(async () => (await api("GET", "/v1/inboxes/agent@mailonce.test/messages?has=code")).data[0], "the message");
  await goto(`/messages/${message.id}`);
  await type(page, page.getByRole("textbox", { name: "For" }), "signup-7");
  await page.keyboard.press("Enter");
  await page.locator("main").getByText("402625").first().waitFor();
  return message;
};

const takeOver = async ({ page, goto }, message) => {
  await api("POST", `/v1/threads/${message.thread_id}/lease`, { holder: "agent-7", ttl_s: 600 });
  const lease = page.locator("section", { has: page.getByRole("heading", { name: "Lease" }) });
  await goto(`/threads/${message.thread_id}`);
  await press(page, lease.getByRole("button", { name: "Take over…" }));
  await press(page, page.getByRole("dialog").getByRole("button", { name: "Take over" }));
  await lease.getByText("free").waitFor();
};

const compareAndSimulate = async ({ page, goto }) => {
  await goto("/keys?tool=compare");
  await type(page, page.getByLabel("Idempotency key"), "order-1");
  await type(page, page.getByLabel("Body of the request"), JSON.stringify({ ...mail, subject: "Order 2" }));
  await press(page, page.getByRole("button", { name: "Compare", exact: true }));
  await page.getByRole("group", { name: "Result" }).getByText("422 key_mismatch").waitFor();
  await goto("/setup/rules");
  await type(page, page.getByLabel("To", { exact: true }), "ada@example.com");
  await type(page, page.getByLabel("Text"), "An offer");
  await press(page, page.getByRole("button", { name: "Simulate" }));
  await page.locator("main").getByText("It would be accepted and sent.").waitFor();
};

await withBrowser(async (tools) => {
  await storm(tools);
  await stopAndResume(tools);
  await replay(tools);
  await takeOver(tools, await takeCode(tools));
  await compareAndSimulate(tools);
  for (const [path, name] of DIALOGS) await dialog(tools, path, name);
});
await withBrowser(async ({ page, goto }) => {
  await goto("/");
  const menu = page.getByRole("button", { name: /^Menu/ });
  await menu.focus();
  assert.equal(await page.getByRole("link", { name: "Emails", exact: true }).isVisible(), false);
  await page.keyboard.press("Enter");
  await page.getByRole("link", { name: "Emails", exact: true }).waitFor();
  for (let step = 0; step < 30 && (await focusedText(page)) !== "Emails"; step += 1) await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Emails", level: 1 }).waitFor();
  assert.equal(await page.getByRole("link", { name: "Emails", exact: true }).isVisible(), false, "the menu is closed");
}, { viewport: PHONE });
