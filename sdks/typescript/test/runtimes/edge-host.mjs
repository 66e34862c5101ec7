// Runs the one file of edge.mjs in the runtime that edge functions have: node edge-host.mjs FILE

import { readFileSync } from "node:fs";
import { EdgeRuntime } from "edge-runtime";

const { MAILONCE_CONTRACT, MAILONCE_URL: baseUrl, MAILONCE_API_KEY: apiKey } = process.env;
const read = (name) => JSON.parse(readFileSync(`${MAILONCE_CONTRACT}/${name}.json`, "utf8"));
const given = { baseUrl, apiKey, keys: read("keys"), webhooks: read("webhooks") };
const runtime = new EdgeRuntime({ extend: (context) => Object.assign(context, { given }) });
runtime.evaluate(readFileSync(process.argv[2], "utf8"));
console.log("edge", await runtime.evaluate("checked"));
