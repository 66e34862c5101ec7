// Signs in with a link and decides with approval links, in a window of a phone without scripts. Started by
// scripts/test-pages. SCREENSHOTS is a folder for pictures of what was seen.
import assert from "node:assert/strict";
import { createRequire } from "node:module";

const { chromium } = createRequire(process.env.PLAYWRIGHT_FROM)("playwright-core");
const { CHROMIUM, MAILONCE_URL, MAILONCE_API_KEY, MAILONCE_SIGN_IN, SCREENSHOTS } = process.env;
const PHONE = { viewport: { width: 390, height: 844 }, hasTouch: true };

const api = async (method, path, body) => {
  const headers = { authorization: `Bearer ${MAILONCE_API_KEY}`, "content-type": "application/json" };
  const response = await fetch(MAILONCE_URL + path, { method, headers, body: body && JSON.stringify(body) });
  assert.ok(response.ok, `${method} ${path}: ${response.status} ${await response.clone().text()}`);
  return response.json();
};

const picture = async (page, name) => {
  if (SCREENSHOTS) await page.screenshot({ path: `${SCREENSHOTS}/${name}.png`, fullPage: true });
};

/** A page that records errors, violations of its policy and requests to other hosts. */
const open = async (context) => {
  const page = await context.newPage();
  page.faults = [];
  page.on("console", (message) => message.type() === "error" && page.faults.push(message.text()));
  page.on("request", (request) => request.url().startsWith(MAILONCE_URL) || page.faults.push(request.url()));
  return page;
};

/** Chromium reports every answer of 400 and more as an error. */
const faults = (page) => page.faults.filter((text) => !/status of (404|409|410|422)/.test(text));

const signIn = async (browser) => {
  const context = await browser.newContext(PHONE);
  const page = await open(context);
  await page.goto(MAILONCE_SIGN_IN);
  await picture(page, "sign-in");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.waitForURL((url) => !url.pathname.startsWith("/sign-in"));
  const [cookie] = await context.cookies();
  assert.deepEqual([cookie.name, cookie.httpOnly, cookie.sameSite], ["mailonce", true, "Lax"]);
  const session = await page.evaluate(async () => (await fetch("/v1/session")).json());
  assert.deepEqual([session.person.name, session.person.role], ["dev", "admin"]);
  const statuses = await page.evaluate(async (token) => {
    const body = JSON.stringify({ name: "Ada", role: "approver" });
    const add = (headers) => fetch("/v1/people", { method: "POST", body, headers: { "content-type": "application/json", ...headers } });
    return [(await add({})).status, (await add({ "mailonce-csrf": token })).status];
  }, session.csrf_token);
  assert.deepEqual(statuses, [403, 201], "only a page that can read the token may change something");
  const again = await page.goto(MAILONCE_SIGN_IN);
  assert.equal(again.status(), 410);
  await picture(page, "sign-in-used");
  await context.close();
};

/** Holds an email for approval. Returns the email and the path of Ada's link. */
const hold = async (subject, ada) => {
  const email = await api("POST", "/v1/emails", {
    from: "agent@mailonce.test", to: ["eve@example.com"], cc: ["bob@example.com"], subject,
    text: "Dear Eve,\n\nplease pay <b>100</b> & smile.\n", html: "<p>Dear Eve, please pay <b>100</b> &amp; smile.</p><script>alert(1)</script>",
  });
  assert.equal(email.state, "held");
  const { data } = await api("GET", "/v1/escalations?state=open");
  const { url } = await api("POST", `/v1/escalations/${data[0].id}/approval-links`, { person: ada });
  return { email: email.id, path: new URL(url).pathname };
};

const approve = async (browser) => {
  await api("POST", "/v1/rules", {
    name: "ask", direction: "outbound", actions: [{ type: "approve" }],
    match: { conditions: [{ field: "subject", operator: "contains", value: "Invoice" }] },
  });
  const ada = (await api("GET", "/v1/people")).data.find(({ name }) => name === "Ada").id;
  const first = await hold("Invoice 4821", ada);
  const second = await hold("Invoice 4822", ada);
  const context = await browser.newContext({ ...PHONE, javaScriptEnabled: false });
  const page = await open(context);
  await page.goto(MAILONCE_URL + first.path);
  await picture(page, "approval");
  const text = await page.locator("main").innerText();
  for (const part of ["Approve this email?", "Invoice 4821", "eve@example.com", "bob@example.com", "pay <b>100</b> & smile"]) {
    assert.ok(text.includes(part), `${part}: ${text}`);
  }
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth), "it scrolls sideways");
  assert.equal((await api("GET", `/v1/emails/${first.email}`)).state, "held", "looking decides nothing");
  await page.getByRole("button", { name: "Approve and send" }).click();
  await page.getByRole("heading", { name: "Decided: Approve and send" }).waitFor();
  await picture(page, "approval-decided");
  assert.notEqual((await api("GET", `/v1/emails/${first.email}`)).state, "held");
  await page.getByRole("link", { name: "One more waits for you" }).click();
  await page.getByText("Edit it first").click();
  await page.getByLabel("Subject").fill("Invoice 4822, corrected");
  await page.getByLabel("Text").fill("Dear Eve,\n\nno need to pay.\n");
  await picture(page, "approval-edit");
  await page.getByRole("button", { name: "Send the edited email" }).click();
  await page.getByRole("heading", { name: "Decided: Send the edited email" }).waitFor();
  const { resent_as: edited } = await api("GET", `/v1/emails/${second.email}`);
  assert.equal((await api("GET", `/v1/emails/${edited}`)).subject, "Invoice 4822, corrected");
  assert.equal((await page.goto(MAILONCE_URL + second.path)).status(), 410);
  assert.equal((await page.goto(`${MAILONCE_URL}/a/${"0".repeat(32)}-${"0".repeat(64)}`)).status(), 404);
  assert.deepEqual(faults(page), []);
  await context.close();
};

const REASON = "Wrong <b>customer</b>,\nask Eve first.";

/** The reason is what the person typed, and the email never leaves. The link in a second window is too late, and says who decided. */
const reject = async (browser) => {
  const ada = (await api("GET", "/v1/people")).data.find(({ name }) => name === "Ada").id;
  const held = await hold("Invoice 4824", ada);
  const context = await browser.newContext({ ...PHONE, javaScriptEnabled: false });
  const [page, second] = [await open(context), await open(context)];
  for (const window of [page, second]) await window.goto(MAILONCE_URL + held.path);
  await page.getByLabel("Reason, or your answer").fill(REASON);
  await page.getByRole("button", { name: "Reject", exact: true }).click();
  await page.getByRole("heading", { name: "Decided: Reject", exact: true }).waitFor();
  assert.match(await page.locator("main").innerText(), /^Ada decided at \S+ The first decision counts\.$/m);
  assert.equal(await page.locator("pre").innerText(), REASON);
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth), "it scrolls sideways");
  await picture(page, "approval-rejected");
  const { data } = await api("GET", "/v1/escalations?state=resolved&limit=100");
  const { decision } = data.find(({ about }) => about.email === held.email);
  assert.deepEqual([decision.as, decision.reason, decision.person], ["reject", REASON, ada]);
  // Both windows of the phone had a form. The second one asks for the opposite.
  await second.getByLabel("Reason, or your answer").fill("It is fine.");
  const [answer] = await Promise.all([
    second.waitForResponse((response) => response.request().method() === "POST"),
    second.getByRole("button", { name: "Approve and send" }).click(),
  ]);
  assert.equal(answer.status(), 410);
  const again = await page.goto(MAILONCE_URL + held.path);
  assert.equal(again.status(), 410);
  for (const window of [page, second]) {
    await window.getByRole("heading", { name: "Decided: Reject", exact: true }).waitFor();
    const text = await window.locator("main").innerText();
    assert.ok(text.includes("Ada decided at") && text.includes("ask Eve first.") && !text.includes("It is fine."), text);
    assert.equal(await window.locator("form, button").count(), 0, "there is nothing left to press");
  }
  const email = await api("GET", `/v1/emails/${held.email}`);
  assert.deepEqual([email.state, email.handoffs.flatMap(({ attempts }) => attempts)], ["cancelled", []]);
  assert.deepEqual([...faults(page), ...faults(second)], []);
  await context.close();
};

/** Another site can neither frame the page nor post its form. */
const attack = async (browser) => {
  const ada = (await api("GET", "/v1/people")).data.find(({ name }) => name === "Ada").id;
  const held = await hold("Invoice 4823", ada);
  const page = await (await browser.newContext()).newPage();
  await page.route("http://evil.test/**", (route) => route.fulfill({
    contentType: "text/html",
    body: `<iframe src="${MAILONCE_URL}${held.path}"></iframe>
      <form method="post" action="${MAILONCE_URL}${held.path}"><input name="as" value="release"><input name="rev" value="1"></form>`,
  }));
  await page.goto("http://evil.test/");
  const framed = page.frames().find((frame) => frame !== page.mainFrame());
  assert.ok(!(await framed.content()).includes("Approve and send"), "the page can be framed");
  const [response] = await Promise.all([
    page.waitForResponse((response) => response.request().method() === "POST"),
    page.evaluate(() => document.forms[0].submit()),
  ]);
  assert.equal(response.status(), 403);
  assert.equal((await api("GET", `/v1/emails/${held.email}`)).state, "held");
};

const browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox"] });
try {
  await signIn(browser);
  await approve(browser);
  await reject(browser);
  await attack(browser);
  console.log("people: signed in once, two emails approved and one rejected on a phone without scripts, another site refused");
} finally {
  await browser.close();
}
