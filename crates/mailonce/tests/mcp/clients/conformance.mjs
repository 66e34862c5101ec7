// The protocol's own suite, as far as it is about what we do: its other scenarios want tools and features of its own.
// It brings no credential, so one is added on the way.
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import http from "node:http";

const { port, key } = JSON.parse(readFileSync(0, "utf8"));
const SCENARIOS = ["server-initialize", "ping", "tools-list", "dns-rebinding-protection"];
const suite = "node_modules/@modelcontextprotocol/conformance/dist/index.js";

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

for (const scenario of SCENARIOS) {
  const child = spawn(process.execPath, [suite, "server", "--url", url, "--scenario", scenario]);
  let said = "";
  child.stdout.on("data", part => (said += part));
  child.stderr.on("data", part => (said += part));
  const code = await new Promise(done => child.on("close", done));
  const passed = said.match(/Passed: (\d+)\/(\d+), 0 failed, 0 warnings/);
  if (code !== 0 || !passed || passed[1] !== passed[2] || passed[1] === "0") {
    console.error(`${scenario} ended with ${code}\n${said}`);
    process.exit(1);
  }
  console.log(`${scenario} ${passed[1]}`);
}
process.exit(0);
