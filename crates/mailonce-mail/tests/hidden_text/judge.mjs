// Asks Chromium which marker words of the fixtures a person would see, and compares the answers with verdicts.json.
//
//   node judge.mjs           fails on any difference
//   node judge.mjs --write   writes verdicts.json
//
// Each fixture is rendered twice for each marker: as it is, and with other letters of the same width in its place. If
// no pixels differ, or too few for a letter, nobody could have read the marker. No style can fool this.
//
// Needs playwright-core, which NODE_PATH or a node_modules folder above may hold, and Chromium at $CHROMIUM or in PATH.
import { createRequire } from "node:module";
import { readFileSync, writeFileSync } from "node:fs";
import { inflateSync } from "node:zlib";

const require = createRequire(process.env.PLAYWRIGHT_FROM ?? import.meta.url);
const { chromium } = require("playwright-core");
const file = (name) => new URL(name, import.meta.url);
const MARKERS = ["PUBLIC", "SECRET", "OTHER"];
// Differences of a pixel's colour that an eye notices.
const CONTRAST = 32;
// Pixels of the frame that a fixture is shown in, and fixtures on one page.
const HEIGHT = 200;
const BATCH = 16;

/** The pixels of a PNG of eight bits without interlacing, as Chromium writes it. */
function pixels(png) {
  let at = 8;
  const parts = [];
  let width, channels;
  while (at < png.length) {
    const size = png.readUInt32BE(at);
    const kind = png.toString("latin1", at + 4, at + 8);
    const data = png.subarray(at + 8, at + 8 + size);
    if (kind === "IHDR") [width, channels] = [data.readUInt32BE(0), data[9] === 6 ? 4 : 3];
    if (kind === "IDAT") parts.push(data);
    at += 12 + size;
  }
  const raw = inflateSync(Buffer.concat(parts));
  const stride = width * channels;
  const rows = [];
  let above = new Uint8Array(stride);
  for (let from = 0; from < raw.length; from += stride + 1) {
    const row = Uint8Array.from(raw.subarray(from + 1, from + 1 + stride));
    unfilter(raw[from], row, above, channels);
    rows.push(row);
    above = row;
  }
  return { rows, channels };
}

/** Undoes the filter of a row (PNG, section 9). */
function unfilter(kind, row, above, channels) {
  for (let i = 0; i < row.length; i++) {
    const left = i < channels ? 0 : row[i - channels];
    if (kind === 1) row[i] += left;
    else if (kind === 2) row[i] += above[i];
    else if (kind === 3) row[i] += (left + above[i]) >> 1;
    else if (kind === 4) row[i] += paeth(left, above[i], i < channels ? 0 : above[i - channels]);
  }
}

function paeth(left, above, corner) {
  const estimate = left + above - corner;
  const [a, b, c] = [Math.abs(estimate - left), Math.abs(estimate - above), Math.abs(estimate - corner)];
  return a <= b && a <= c ? left : b <= c ? above : corner;
}

/** Whether two pictures differ by more than a speck between two rows. */
function differ(one, other, from) {
  let [top, bottom, left, right] = [Infinity, -1, Infinity, -1];
  for (let y = from; y < from + HEIGHT; y++) {
    const [row, changed] = [one.rows[y], other.rows[y]];
    for (let i = 0; i < row.length; i++) {
      if (Math.abs(row[i] - changed[i]) < CONTRAST) continue;
      const x = Math.floor(i / one.channels);
      [top, bottom] = [Math.min(top, y), Math.max(bottom, y)];
      [left, right] = [Math.min(left, x), Math.max(right, x)];
    }
  }
  return bottom - top >= 3 && right - left >= 6;
}

/** Runs in the page: one frame for each fixture, with letters of one width, so that other letters move nothing. */
async function build([pages, height]) {
  document.body.style.margin = 0;
  document.body.replaceChildren();
  for (const html of pages) {
    const frame = document.createElement("iframe");
    frame.style.cssText = `display:block;border:0;width:800px;height:${height}px`;
    document.body.append(frame);
    frame.contentDocument.open();
    frame.contentDocument.write(html);
    frame.contentDocument.close();
    const sheet = new frame.contentWindow.CSSStyleSheet();
    sheet.replaceSync(":where(*) { font-family: monospace }");
    frame.contentDocument.adoptedStyleSheets = [sheet];
  }
  // Images, imported style sheets and animations.
  await new Promise((done) => setTimeout(done, 700));
}

/** Runs in the page: puts other letters in the place of a marker. Returns in which frames it was. */
function replace([marker, other]) {
  return [...document.querySelectorAll("iframe")].map((frame) => {
    const page = frame.contentDocument;
    const roots = [page];
    let found = false;
    while (roots.length) {
      const walker = page.createTreeWalker(roots.pop(), NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT);
      for (let node = walker.nextNode(); node; node = walker.nextNode()) {
        if (node.shadowRoot) roots.push(node.shadowRoot);
        if (node.nodeType !== Node.TEXT_NODE || !node.data.includes(marker)) continue;
        node.data = node.data.replace(marker, other);
        found = true;
      }
    }
    return found;
  });
}

/** Judges some fixtures that stand below each other on one page. */
async function judge(page, batch) {
  await page.evaluate(build, [batch.map(({ html }) => html), HEIGHT]);
  const shot = async () => pixels(await page.screenshot({ animations: "allow", caret: "initial" }));
  const before = await shot();
  for (const marker of MARKERS.filter((marker) => batch.some(({ html }) => html.includes(marker)))) {
    const other = "x".repeat(marker.length);
    const found = await page.evaluate(replace, [marker, other]);
    const after = await shot();
    await page.evaluate(replace, [other, marker]);
    batch.forEach(({ name, html }, index) => {
      if (!html.includes(marker)) return;
      verdicts[name] ??= {};
      verdicts[name][marker] = found[index] && differ(before, after, index * HEIGHT);
    });
  }
}

const fixtures = JSON.parse(readFileSync(file("fixtures.json"), "utf8"));
const verdicts = {};
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-lcd-text", "--host-resolver-rules=MAP * ~NOTFOUND"],
});
const page = await browser.newPage({ viewport: { width: 800, height: HEIGHT * BATCH } });
await page.setContent("<!doctype html><body></body>");
for (let from = 0; from < fixtures.length; from += BATCH) await judge(page, fixtures.slice(from, from + BATCH));
const version = browser.version();
await browser.close();

const lines = fixtures.map(({ name }) => `${JSON.stringify(name)}: ${JSON.stringify(verdicts[name])}`);
const text = `{\n${lines.join(",\n")}\n}\n`;
if (process.argv.includes("--write")) {
  writeFileSync(file("verdicts.json"), text);
} else {
  const known = JSON.parse(readFileSync(file("verdicts.json"), "utf8"));
  const changed = fixtures.filter(({ name }) => JSON.stringify(known[name]) !== JSON.stringify(verdicts[name]));
  for (const { name } of changed) {
    console.error(`${name}: recorded ${JSON.stringify(known[name])}, now ${JSON.stringify(verdicts[name])}`);
  }
  if (changed.length || Object.keys(known).length !== fixtures.length) process.exit(1);
}
console.log(`${fixtures.length} fixtures judged by Chromium ${version}`);
