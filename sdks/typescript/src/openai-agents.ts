// Tools for OpenAI Agents: `new Agent({ name, tools: emailTools(mo, { from }) })`.

import { tool, type FunctionTool } from "@openai/agents";
import type { Mailonce } from "./index.js";
import { emailTools as definitions, strict, type ToolOptions } from "./tools.js";

export { FirstResults, type ToolAnswer, type ToolName, type ToolOptions } from "./tools.js";

type Parameters = {
  type: "object";
  properties: Record<string, never>;
  required: string[];
  additionalProperties: false;
};

export function emailTools(mo: Mailonce, options: ToolOptions = {}): FunctionTool<unknown, never, unknown>[] {
  return definitions(mo, options).map(
    ({ name, description, parameters, needsApproval, run }) =>
      tool({
        name,
        description,
        strict: true,
        parameters: strict(parameters) as unknown as Parameters,
        needsApproval,
        execute: (input: unknown, _context, details) =>
          run(input as Record<string, unknown>, details?.toolCall?.callId, details?.signal),
      }) as FunctionTool<unknown, never, unknown>,
  );
}
