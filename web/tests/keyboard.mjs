// The phone's menu and the dialogs by keyboard alone: each opens with Enter, keeps Tab inside, ends with Escape, and gives
// the focus back to the button that opened it.
import assert from "node:assert/strict";
import { eventually, PHONE, withBrowser } from "./browser.mjs";

const DIALOGS = [
  ["/inboxes", "Create inbox…"], ["/stops", "Stop: Inbox"], ["/stops", "Add budget…"], ["/webhooks", "Add endpoint…"], ["/setup/domains", "Add domain…"],
  ["/setup/api-keys", "Create API key…"], ["/setup/rules", "Add rule…"], ["/setup/people", "Add person…"],
];

const focusedText = (page) => page.evaluate(() => document.activeElement?.getAttribute("aria-label") ?? document.activeElement?.textContent);
const isInside = (page) => page.evaluate(() => Boolean(document.activeElement?.closest("dialog")) || document.activeElement === document.body);

const dialog = async ({ page, goto }, path, name) => {
  await goto(path);
  const button = page.getByRole("button", { name });
  await button.focus();
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

await withBrowser(async (tools) => {
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
