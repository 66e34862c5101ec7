// Without a session, the page explains how to sign in.
import assert from "node:assert/strict";
import { fitsWidth, PHONE, withBrowser } from "./browser.mjs";

for (const viewport of [undefined, PHONE]) {
  await withBrowser(async ({ page, goto, axe, picture }) => {
    await goto("/");
    await page.getByRole("heading", { name: "Sign in to mailonce" }).waitFor();
    assert.ok((await page.locator("main").innerText()).includes("mailonce login"));
    await fitsWidth(page);
    await axe();
    await picture(`signed-out-${viewport ? "phone" : "desktop"}`);
  }, { viewport, signedIn: false, allow: [/status of 401.*\/v1\/session/] });
}
