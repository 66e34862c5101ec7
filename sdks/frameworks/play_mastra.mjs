// Plays the turns of a model with Mastra.

import { Agent } from "@mastra/core/agent";
import { mcp, tools } from "./mastra-tools.mjs";

const turns = JSON.parse(process.env.TURNS);
const steps = turns.length + 1;
const names = new Set();
const usage = { inputTokens: 1, outputTokens: 1, totalTokens: 2 };

async function doGenerate(options) {
  for (const tool of options.tools ?? []) names.add(tool.name.replace("mailonce_", ""));
  const turn = turns.shift();
  if (!turn) return { content: [{ type: "text", text: "done" }], finishReason: "stop", usage, warnings: [] };
  const call = { type: "tool-call", toolCallId: `call-${turns.length}`, toolName: "mailonce_send_email", input: JSON.stringify(turn) };
  return { content: [call], finishReason: "tool-calls", usage, warnings: [] };
}

const model = { specificationVersion: "v2", provider: "scripted", modelId: "scripted", supportedUrls: {}, doGenerate };
const agent = new Agent({ name: "clerk", instructions: "Send mail.", model, tools });
const result = await agent.generate("Go.", { maxSteps: steps });
const answers = result.steps.flatMap((step) => step.toolResults).map((answer) => (answer.payload ?? answer).result);
const statuses = answers.map((answer) => (answer.structuredContent ?? answer).status);
console.log(JSON.stringify({ tools: [...names].sort(), statuses }));
await mcp.disconnect();
