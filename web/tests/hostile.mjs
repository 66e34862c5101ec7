// Mail that attacks the page: markup in every field a stranger or an agent can fill, and HTML that is hostile or huge.
// Nothing runs, nothing is fetched, and the page stays usable.
import assert from "node:assert/strict";
import { api, withBrowser } from "./browser.mjs";

const XSS = `"><img src=x onerror="document.title='owned'"><script>document.title='owned'</script>{{7*7}}`;
const NESTED = `${"<div>".repeat(10_000)}deep${"</div>".repeat(10_000)}`;
const TABLE = `<table>${"<tr><td>1<td>2<td>3</tr>".repeat(20_000)}</table>`;
const HTML = [
  `<style>@import url(https://evil.example/a.css); body { background: url(https://evil.example/b) }</style>`,
  `<link rel=stylesheet href=https://evil.example/c.css><base href=https://evil.example/><meta http-equiv=refresh content="0;url=https://evil.example/">`,
  `<p style="position:fixed;inset:0;background:url(https://evil.example/d)" onclick="top.document.title='owned'">Styled</p>`,
  `<form action=https://evil.example/><input name=password autofocus onfocus="top.document.title='owned'"><button>Send</button></form>`,
  `<img src=https://evil.example/pixel.gif alt="A picture"><img src=data:text/html,<script>alert(1)</script>><svg onload="top.document.title='owned'"><script>1</script></svg>`,
  `<a href="javascript:top.document.title='owned'">Link</a> <a href=https://evil.example/login>https://bank.example</a><iframe src=https://evil.example/></iframe>`,
  `<p title='"><script>top.document.title="owned"</script>'>Quoted</p> 1 < 2 &amp; 3 &lt;b&gt; <!-- hidden --> <p `, `unclosed="`,
].join("\n");

await api("POST", "/v1/rules", { name: XSS.slice(0, 100), direction: "outbound", actions: [{ type: "approve" }], match: { conditions: [{ field: "subject", operator: "contains", value: "img" }] } });
const hold = async (html) => (await api("POST", "/v1/emails", {
  from: `"${XSS.replaceAll('"', "'")}" <agent@mailonce.test>`, to: ["eve@example.com"], subject: XSS, text: XSS, html,
  attachments: [{ filename: `${XSS.replaceAll("/", "")}.txt`, content: "aGVsbG8=" }],
}, { "idempotency-key": `xss-${html.length}`, "mailonce-call-id": encodeURIComponent(XSS) })).id;
await api("POST", "/v1/escalations", { question: XSS, entity: XSS });

const unharmed = async (page) => {
  assert.notEqual(await page.title(), "owned");
  assert.equal(await page.locator("main img, main script, main form").count(), 0);
};

await withBrowser(async ({ page, goto, picture }) => {
  page.on("dialog", () => assert.fail("a dialog was opened"));
  const emails = [await hold(HTML), await hold(`<p>Nested</p>${NESTED}`), await hold(`<p>Table</p>${TABLE}`)];
  await goto("/needs-you");
  await page.getByText("{{7*7}}").first().waitFor();
  await unharmed(page);
  for (const [index, words] of ["Styled", "Nested", "Table"].entries()) {
    await goto(`/emails/${emails[index]}`);
    await page.frameLocator("iframe").getByText(words, { exact: true }).waitFor();
    // The page still answers: 60,000 cells do not keep it busy.
    await page.getByRole("tab", { name: "Timeline" }).click();
    await page.getByRole("table", { name: "Timeline" }).waitFor();
    await unharmed(page);
    await page.getByRole("tab", { name: "Raw" }).click();
  }
  await goto(`/emails/${emails[0]}`);
  const body = page.frameLocator("iframe").locator("body");
  const text = await body.innerText();
  for (const part of ["[A picture · not loaded: https://evil.example/pixel.gif]", "[https://evil.example/login]", "[javascript:", "1 < 2 & 3 <b>"]) assert.ok(text.includes(part), `${part}: ${text}`);
  assert.equal(await body.locator("form, input, script, svg, iframe, style, [style], [onclick], [href]").count(), 0);
  await page.locator("iframe").scrollIntoViewIfNeeded();
  await picture("hostile");
  await goto("/emails");
  await page.getByText("{{7*7}}").first().waitFor();
  await unharmed(page);
  await goto("/");
  await page.getByText("{{7*7}}").first().waitFor();
  await unharmed(page);
});
