// Plays sdks/contract/behaviour.json against the server in memory and, where MAILONCE_URL names one, against a real one:
// what tests see in the double is what they would see in earnest.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Mailonce, MailonceError } from "mailonce";
import { Double } from "mailonce/testing";
import { fits, make } from "./play.mjs";

const CONTRACT = process.env.MAILONCE_CONTRACT ?? new URL("../../contract", import.meta.url).pathname;
const STORIES = JSON.parse(readFileSync(`${CONTRACT}/behaviour.json`, "utf8"));

/** Puts what was kept into the place of `{name}`. */
const filled = (value, kept) => JSON.parse(JSON.stringify(value).replace(/\{(\w+)\}/g, (_, name) => kept[name]));

const picked = (value, path) =>
  path.split(".").reduce((inner, name) => (Array.isArray(inner) ? inner.at(Number(name)) : inner[name]), value);

async function tell(story, mo, receive) {
  const kept = { run: Math.random().toString(36).slice(2, 10) };
  for (const raw of story.steps) {
    const step = filled(raw, kept);
    if (step.receive) {
      await receive(step.receive);
      continue;
    }
    let result, error;
    try {
      result = await make(mo, step.call, step.args);
    } catch (thrown) {
      if (!(thrown instanceof MailonceError) || !step.error) throw thrown;
      error = thrown;
    }
    if (step.error) fits(step.error, error, `error of ${step.call}`);
    else if (step.result !== undefined) fits(step.result, result, step.call);
    for (const [name, path] of Object.entries(step.keep ?? {})) kept[name] = picked(result, path);
  }
}

for (const story of STORIES) {
  test(`the double: ${story.name}`, async () => {
    const double = new Double();
    await tell(story, double.client(), (mail) => double.receive(mail));
  });

  test(
    `the server: ${story.name}`,
    { skip: process.env.MAILONCE_URL ? false : "MAILONCE_URL is not set" },
    async () => {
      await tell(story, new Mailonce(), simulate);
    },
  );
}

/** Lets a mail arrive at the real server, by SMTP. */
function simulate(mail) {
  const words = [
    "simulate",
    "inbound",
    "--to",
    mail.to,
    "--from",
    mail.from,
    "--subject",
    mail.subject,
    "--smtp",
    process.env.MAILONCE_SMTP_LISTEN,
  ];
  if (mail.text) words.push("--text", mail.text);
  if (mail.code) words.push(`--code=${mail.code}`);
  execFileSync(process.env.MAILONCE_BIN, words);
}
