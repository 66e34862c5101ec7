// Tools for the Vercel AI SDK: `generateText({ model, tools: emailTools(mo, { from }), … })`.

import { jsonSchema, tool, type Tool, type ToolSet } from "ai";
import type { Mailonce } from "./index.js";
import { emailTools as definitions, type ToolAnswer, type ToolOptions } from "./tools.js";

export { FirstResults, type ToolAnswer, type ToolName, type ToolOptions } from "./tools.js";

export function emailTools(mo: Mailonce, options: ToolOptions = {}): ToolSet {
  const tools: Record<string, Tool<Record<string, unknown>, ToolAnswer>> = {};
  for (const { name, description, parameters, needsApproval, run } of definitions(mo, options)) {
    tools[name] = tool({
      description,
      inputSchema: jsonSchema<Record<string, unknown>>(parameters as object),
      needsApproval,
      execute: (input: Record<string, unknown>, { toolCallId, abortSignal }) => run(input, toolCallId, abortSignal),
    });
  }
  return tools;
}
