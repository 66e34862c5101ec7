// How the page and its files are served: with the policy that keeps other hosts and inline scripts out, compressed, and not
// again while they have not changed. What the binary serves is what `web/dist` has.
import assert from "node:assert/strict";
import { readdir, readFile } from "node:fs/promises";
import { request } from "node:http";
import { gunzipSync } from "node:zlib";

const { MAILONCE_URL } = process.env;

/** Plain HTTP, because `fetch` unpacks bodies and hides how they were sent. */
const load = (path, headers = {}) => new Promise((resolve, reject) => {
  request(MAILONCE_URL + path, { headers }, (response) => {
    const parts = [];
    response.on("data", (part) => parts.push(part));
    response.on("end", () => resolve({ status: response.statusCode, headers: response.headers, body: Buffer.concat(parts) }));
  }).on("error", reject).end();
});

const directives = (policy) => Object.fromEntries(policy.split(";").map((part) => part.trim().split(/\s+/)).map(([name, ...values]) => [name, values.join(" ")]));

const pages = ["/", "/emails", "/needs-you/anything", "/setup/people"];
const texts = new Set();
for (const path of pages) {
  const { status, headers, body } = await load(path);
  assert.equal(status, 200, path);
  assert.match(headers["content-type"], /^text\/html/);
  const policy = directives(headers["content-security-policy"]);
  assert.equal(policy["default-src"], "'none'", path);
  for (const name of ["script-src", "style-src", "connect-src", "font-src", "frame-src"]) assert.equal(policy[name], "'self'", `${path}: ${name}`);
  for (const name of ["base-uri", "form-action", "frame-ancestors"]) assert.equal(policy[name], "'none'", `${path}: ${name}`);
  assert.equal(policy["require-trusted-types-for"], "'script'");
  assert.equal(headers["x-content-type-options"], "nosniff");
  assert.equal(headers["referrer-policy"], "no-referrer");
  texts.add(body.toString());
}
assert.equal(texts.size, 1, "every page is one file");

// What the page loads is served by this server, and nothing names another host.
const [html] = texts;
const assets = [...html.matchAll(/(?:src|href)="([^"]+)"/g)].map(([, path]) => path).filter((path) => path.startsWith("/assets/"));
assert.ok(assets.includes("/assets/app.js") && assets.includes("/assets/app.css"), html);
assert.ok(!/(?:src|href)="(?!\/)/.test(html), html);
for (const path of [...new Set(assets), "/assets/mail.css"]) {
  const plain = await load(path);
  assert.equal(plain.status, 200, path);
  assert.equal(plain.headers["x-content-type-options"], "nosniff", path);
  assert.equal(plain.headers["content-encoding"], undefined, path);
  assert.ok(!/@import|url\((?!"?data:)/.test(path.endsWith(".css") ? plain.body.toString() : ""), `${path} loads something else`);
  const packed = await load(path, { "accept-encoding": "gzip" });
  assert.equal(packed.headers["content-encoding"], "gzip", path);
  assert.equal(packed.headers["vary"], "accept-encoding", path);
  assert.ok(packed.body.length < plain.body.length || plain.body.length < 300, `${path} is not smaller`);
  const known = await load(path, { "if-none-match": plain.headers["etag"] });
  assert.deepEqual([known.status, known.body.length], [304, 0], path);
  assert.equal((await load(path, { "if-none-match": '"another"' })).status, 200, path);
}
// Frames of received mail have an origin of their own and may load this one file.
assert.equal((await load("/assets/mail.css")).headers["cross-origin-resource-policy"], "cross-origin");
assert.notEqual((await load("/assets/app.js")).headers["cross-origin-resource-policy"], "cross-origin");
for (const path of ["/assets/nothing.js", "/assets/index.html", "/assets/..%2findex.html", "/nowhere"]) assert.equal((await load(path)).status, 404, path);

// The files are part of the binary: each is the committed one, byte by byte.
const dist = new URL("../dist/", import.meta.url);
const page = await readFile(new URL("index.html", dist), "utf8");
assert.ok(html === page, "the page is not web/dist/index.html; build the server again");
for (const name of await readdir(new URL("assets/", dist))) {
  const [built, { body: plain }, { body: packed }] = await Promise.all([readFile(new URL(`assets/${name}`, dist)), load(`/assets/${name}`), load(`/assets/${name}`, { "accept-encoding": "gzip" })]);
  assert.ok(plain.equals(built), `${name} is not the one in web/dist; build the server again`);
  assert.ok(gunzipSync(packed).equals(built), `${name}, compressed, is another file`);
}
