// What runs at the edge, once it is one file: there are no modules, no `require`, no `process` and no environment.

import * as sdk from "mailonce";
import { check } from "./check.mjs";

async function run({ baseUrl, apiKey, keys, webhooks }) {
  if (globalThis.process || globalThis.require || !globalThis.EdgeRuntime) throw new Error("this is no edge");
  try {
    new sdk.Mailonce({ baseUrl });
    throw new Error("a client without a key was made");
  } catch (error) {
    if (error.code !== "unauthorized") throw error;
  }
  return check(sdk, { mo: new sdk.Mailonce({ baseUrl, apiKey }), keys, webhooks });
}

globalThis.checked = run(globalThis.given);
