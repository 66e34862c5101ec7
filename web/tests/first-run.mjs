// An empty dashboard teaches: the command from the page is run twice in a shell, and the duplicate appears live.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { withBrowser } from "./browser.mjs";

const sh = async (command) => (await promisify(execFile)("bash", ["-c", command])).stdout;

/** What moves, moves only for people who did not ask for less motion. */
const checkMotion = async (page) => {
  const moving = () => page.evaluate(() => document.getAnimations().filter(({ playState }) => playState === "running").length);
  assert.equal(await moving(), 0, "less motion");
  await page.emulateMedia({ reducedMotion: "no-preference" });
  assert.ok((await moving()) > 0, "motion");
  await page.emulateMedia({ reducedMotion: "reduce" });
};

await withBrowser(async ({ page, goto, axe, picture }) => {
  await goto("/");
  await page.getByRole("heading", { name: "Send your first email, twice" }).waitFor();
  await page.getByText("Waiting for the first call…").waitFor();
  await axe();
  await checkMotion(page);
  await picture("first-run");
  await page.getByRole("button", { name: "Fill in a new API key" }).click();
  await page.getByText("The key is shown only now.").waitFor();
  await page.getByRole("button", { name: "Copy the command" }).click();
  const command = await page.evaluate(() => navigator.clipboard.readText());
  const first = JSON.parse(await sh(command));
  assert.equal(first.dedupe.outcome, "first");
  await page.getByText("Accepted: the first call created the email").waitFor();
  await page.getByText("Now run the same command again.").waitFor();
  const second = JSON.parse(await sh(command));
  assert.deepEqual([second.dedupe.outcome, second.id], ["replayed", first.id]);
  await page.getByText("Duplicate stopped: the call got the first email back, and nothing was sent").waitFor();
  await picture("first-run-duplicate");
  await page.getByRole("button", { name: "Go to the overview" }).click();
  await page.getByRole("heading", { name: "Overview", level: 1 }).waitFor();
  await page.getByRole("link", { name: "Hello" }).waitFor();
  await axe();
  await goto("/");
  await page.getByRole("heading", { name: "Overview", level: 1 }).waitFor();
});
