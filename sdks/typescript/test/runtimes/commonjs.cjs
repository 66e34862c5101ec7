// The package by `require`.

const { readFileSync } = require("node:fs");
const sdk = require("mailonce");

const read = (name) => JSON.parse(readFileSync(`${process.env.MAILONCE_CONTRACT}/${name}.json`, "utf8"));
import("./check.mjs")
  .then(({ check }) => check(sdk, { mo: new sdk.Mailonce(), keys: read("keys"), webhooks: read("webhooks") }))
  .then((told) => console.log(`node ${process.versions.node} by require`, told));
