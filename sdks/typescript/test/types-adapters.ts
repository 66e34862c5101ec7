// The adapters' tools are what their frameworks take, under `tsc --strict`.

import { Agent } from "@openai/agents";
import { generateText, type LanguageModel } from "ai";
import { Mailonce } from "mailonce";
import * as vercel from "mailonce/ai";
import * as openai from "mailonce/openai-agents";

declare const mo: Mailonce;
declare const model: LanguageModel;

export const agent = new Agent({ name: "clerk", tools: openai.emailTools(mo, { from: "agent@example.com" }) });
export const answer = generateText({
  model,
  prompt: "Go.",
  tools: vercel.emailTools(mo, {
    from: "agent@example.com",
    inbox: "desk@example.com",
    calls: new vercel.FirstResults(),
  }),
});
export const some = vercel.emailTools(mo, { tools: ["send_email"], needsApproval: ["send_email"] });
// @ts-expect-error there is no such tool
export const none = openai.emailTools(mo, { tools: ["send_mail"] });
