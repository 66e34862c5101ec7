// Serves dist/ with the Content-Security-Policy of the server, rebuilds it after each change, and passes every other
// request on to a running mailonce ($MAILONCE_URL).
//
//   MAILONCE_URL=http://127.0.0.1:6245 npm run dev          # PORT=5173 by default, 0 for a free one
//   NO_WATCH=1                                              # serve dist as it is
//   DIST=/tmp/dist                                          # build and serve another folder
import { readFile } from "node:fs/promises";
import { createServer, request as httpRequest } from "node:http";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { DIST, watch } from "./build.mjs";

export const CSP = [
  "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' data:", "connect-src 'self'",
  "font-src 'self'", "frame-src 'self'", "form-action 'none'", "frame-ancestors 'none'", "base-uri 'none'",
  "require-trusted-types-for 'script'", "trusted-types mailonce-mail",
].join("; ");
const PAGES = /^\/(needs-you|emails|live|inboxes|messages|threads|duplicates|keys|webhooks|stops|setup)?(\/|$)/;
const TYPES = { js: "text/javascript", css: "text/css", svg: "image/svg+xml", html: "text/html" };

const sendFile = async (path, response) => {
  const body = await readFile(join(DIST, path)).catch(() => null);
  if (!body) return response.writeHead(404).end();
  response.writeHead(200, {
    "content-type": `${TYPES[path.split(".").pop()] ?? "application/octet-stream"}; charset=utf-8`,
    "content-security-policy": CSP, "cache-control": "no-cache", "x-content-type-options": "nosniff", "referrer-policy": "no-referrer",
  });
  return response.end(body);
};

/** The server checks Host and Origin, so both must name the server and not this proxy. */
const proxy = (target, request, response) => {
  const headers = { ...request.headers, host: target.host };
  if (headers.origin) headers.origin = target.origin;
  if (headers.referer) headers.referer = headers.referer.replace(/^https?:\/\/[^/]+/, target.origin);
  const upstream = httpRequest({ hostname: target.hostname, port: target.port, path: request.url, method: request.method, headers }, (answer) => {
    response.writeHead(answer.statusCode, answer.headers);
    answer.pipe(response);
    answer.on("error", () => response.destroy());
  });
  upstream.on("error", () => (response.headersSent ? response.destroy() : response.writeHead(502).end("mailonce does not answer")));
  response.on("close", () => upstream.destroy());
  request.pipe(upstream);
};

/** Starts the development server and returns its URL. */
export const serve = (mailonceUrl, port = 0) => new Promise((resolve) => {
  const target = new URL(mailonceUrl);
  const server = createServer((request, response) => {
    const { pathname } = new URL(request.url, "http://localhost");
    if (pathname.startsWith("/assets/") && !pathname.includes("..")) return sendFile(pathname.slice(1), response);
    const html = request.method === "GET" && (request.headers.accept ?? "").includes("text/html");
    if (html && PAGES.test(pathname)) return sendFile("index.html", response);
    return proxy(target, request, response);
  });
  server.listen(port, "127.0.0.1", () => resolve({ url: `http://127.0.0.1:${server.address().port}`, server }));
});

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { MAILONCE_URL = "http://127.0.0.1:6245", PORT = "5173", NO_WATCH } = process.env;
  if (!NO_WATCH) await watch((errors) => console.log(errors ? `${errors} errors` : "built"));
  const { url } = await serve(MAILONCE_URL, Number(PORT));
  console.log(`${url} shows ${MAILONCE_URL}`);
}
