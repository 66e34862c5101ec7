// One call of a tool at `/mcp`. Every tool is idempotent, so a call that was not answered is made again unchanged.

import { type Caller, type CallOptions, pause } from "./call.js";
import { MailonceError } from "./error.js";

/** The result of a tool: branch on `status`; `next` says what to do. Of an error, `detail` and `field` say what is wrong. */
export type ToolAnswer = { status: string; next: string } & Record<string, unknown>;

interface Message {
  result?: { structuredContent: ToolAnswer; isError: boolean };
  error?: { message: string };
}

/** Errors of the server that pass. */
const TEMPORARY = ["unavailable", "timeout", "internal"];
/** How many seconds the server waits at most, and unless `timeout_s` says otherwise. */
const [MAX_WAIT_S, DEFAULT_WAIT_S] = [50, 4];

export async function callTool(
  caller: Caller,
  name: string,
  input: Record<string, unknown>,
  options: CallOptions = {},
): Promise<ToolAnswer> {
  const call = {
    method: "POST",
    path: "/mcp",
    headers: { "MCP-Protocol-Version": "2025-11-25" },
    body: { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name, arguments: input } },
    hold: Math.min(Number(input["timeout_s"]) || DEFAULT_WAIT_S, MAX_WAIT_S),
  };
  for (let tried = 1; ; tried++) {
    const { result, error } = await caller.json<Message>(call, options);
    if (result === undefined) {
      throw new MailonceError({
        code: "no_problem",
        detail: error?.message ?? "the answer has no result",
        next: "Update the server: it does not know this tool.",
      });
    }
    const { structuredContent: answer, isError } = result;
    const again = isError && TEMPORARY.includes(answer.status) && tried <= (options.maxRetries ?? caller.maxRetries);
    if (!again) return answer;
    await pause(caller.backoff(tried), options.signal).catch(() => undefined); // the next round tells
  }
}
