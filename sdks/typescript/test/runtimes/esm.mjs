// Node, Bun and Deno: the package as ESM, its address and key from the environment.

import { readFileSync } from "node:fs";
import * as sdk from "mailonce";
import { check } from "./check.mjs";

const read = (name) => JSON.parse(readFileSync(`${process.env.MAILONCE_CONTRACT}/${name}.json`, "utf8"));
const told = await check(sdk, { mo: new sdk.Mailonce(), keys: read("keys"), webhooks: read("webhooks") });
const { bun, deno, node } = process.versions;
console.log(bun ? `bun ${bun}` : deno ? `deno ${deno}` : `node ${node}`, told);
