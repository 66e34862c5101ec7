// The protocol's own suite, as far as it is about what we do. Its other scenarios want tools and features of its own.
// It brings no credential, so one is added on the way.
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import http from "node:http";

const { port, key } = JSON.parse(readFileSync(0, "utf8"));
const suite = "node_modules/@modelcontextprotocol/conformance/dist/index.js";

// Scenarios, the revisions to try them in, and the checks that cannot pass: they want the suite's own diagnostic tools, or
// prompts and resources, which are not there.
const SCENARIOS = [
  ["server-initialize", ["2025-11-25", "2025-06-18"], []],
  ["ping", ["2025-11-25", "2025-06-18"], []],
  ["tools-list", ["2026-07-28", "2025-11-25", "2025-06-18"], []],
  ["dns-rebinding-protection", ["2026-07-28", "2025-11-25"], []],
  ["http-header-validation", ["2026-07-28"], []],
  ["server-stateless", ["2026-07-28"], [
    "sep-2575-server-rejects-undeclared-capability",
    "sep-2575-missing-capability-http-400",
    "sep-2575-http-server-no-independent-requests-on-stream",
    "sep-2575-server-no-log-without-loglevel",
  ]],
  ["caching", ["2026-07-28"], [
    "sep-2549-prompts-list-caching-hints",
    "sep-2549-resources-list-caching-hints",
    "sep-2549-resources-templates-list-caching-hints",
  ]],
];

const way = http.createServer((asked, answer) => {
  const headers = { ...asked.headers, authorization: `Bearer ${key}` };
  const on = http.request({ host: "127.0.0.1", port, path: asked.url, method: asked.method, headers }, told => {
    answer.writeHead(told.statusCode, told.headers);
    told.pipe(answer);
  });
  asked.pipe(on);
});
await new Promise(done => way.listen(0, "127.0.0.1", done));
const url = `http://127.0.0.1:${way.address().port}/mcp`;

async function play(scenario, revision) {
  const words = [suite, "server", "--url", url, "--scenario", scenario, "--spec-version", revision];
  const child = spawn(process.execPath, words, { env: { ...process.env, NO_COLOR: "1" } });
  let said = "";
  child.stdout.on("data", part => (said += part));
  child.stderr.on("data", part => (said += part));
  await new Promise(done => child.on("close", done));
  const plain = said.replace(/\u001b\[[0-9;]*m/g, "");
  const checks = [...plain.matchAll(/\[([a-z0-9-]+)\s*\]\s+(SUCCESS|FAILURE|WARNING)/g)];
  const of = word => [...new Set(checks.filter(check => check[2] === word).map(check => check[1]))];
  return { plain, passed: of("SUCCESS"), failed: [...of("FAILURE"), ...of("WARNING")] };
}

for (const [scenario, revisions, absent] of SCENARIOS) {
  for (const revision of revisions) {
    const { plain, passed, failed } = await play(scenario, revision);
    const wrong = failed.filter(check => !absent.includes(check));
    if (wrong.length || !passed.length || !/Passed: \d+\/\d+/.test(plain)) {
      console.error(`${scenario} in ${revision}: ${wrong}\n${plain}`);
      process.exit(1);
    }
    console.log(`${scenario} ${revision} ${passed.length}`);
  }
}
process.exit(0);
