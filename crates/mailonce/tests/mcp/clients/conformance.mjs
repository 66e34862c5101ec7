// The protocol's own conformance suite, limited to the features of this server. Its other scenarios need the suite's
// own tools. The suite sends no API key, so a proxy adds one.
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import http from "node:http";

const { port, key } = JSON.parse(readFileSync(0, "utf8"));
const suite = "node_modules/@modelcontextprotocol/conformance/dist/index.js";

// Scenarios, the revisions to run them in, and checks that cannot pass: they need the suite's own diagnostic tools, or
// prompts and resources, which this server does not have.
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

const proxy = http.createServer((request, response) => {
  const headers = { ...request.headers, authorization: `Bearer ${key}` };
  const forwarded = http.request({ host: "127.0.0.1", port, path: request.url, method: request.method, headers }, upstream => {
    response.writeHead(upstream.statusCode, upstream.headers);
    upstream.pipe(response);
  });
  request.pipe(forwarded);
});
await new Promise(done => proxy.listen(0, "127.0.0.1", done));
const url = `http://127.0.0.1:${proxy.address().port}/mcp`;

async function runScenario(scenario, revision) {
  const args = [suite, "server", "--url", url, "--scenario", scenario, "--spec-version", revision];
  const child = spawn(process.execPath, args, { env: { ...process.env, NO_COLOR: "1" } });
  let output = "";
  child.stdout.on("data", part => (output += part));
  child.stderr.on("data", part => (output += part));
  await new Promise(done => child.on("close", done));
  const plain = output.replace(/\u001b\[[0-9;]*m/g, "");
  const checks = [...plain.matchAll(/\[([a-z0-9-]+)\s*\]\s+(SUCCESS|FAILURE|WARNING)/g)];
  const checksWith = status => [...new Set(checks.filter(check => check[2] === status).map(check => check[1]))];
  return { plain, passed: checksWith("SUCCESS"), failed: [...checksWith("FAILURE"), ...checksWith("WARNING")] };
}

for (const [scenario, revisions, absent] of SCENARIOS) {
  for (const revision of revisions) {
    const { plain, passed, failed } = await runScenario(scenario, revision);
    const wrong = failed.filter(check => !absent.includes(check));
    if (wrong.length || !passed.length || !/Passed: \d+\/\d+/.test(plain)) {
      console.error(`${scenario} in ${revision}: ${wrong}\n${plain}`);
      process.exit(1);
    }
    console.log(`${scenario} ${revision} ${passed.length}`);
  }
}
process.exit(0);
