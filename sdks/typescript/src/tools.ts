// The tools of the server's MCP endpoint, for any framework. The server enforces their guards. A framework's call id is
// sent for correlation only; it is not an idempotency key.

import { type Definition, type ToolName, TOOLS } from "./definitions.js";
import { MailonceError, toAnswer } from "./error.js";
import type { Mailonce } from "./index.js";
import type { ToolAnswer } from "./mcp.js";

export type { ToolName } from "./definitions.js";
export type { ToolAnswer } from "./mcp.js";

export interface ToolOptions {
  /** The address or id of the inbox that sends and is read. Without it, a model with several inboxes names one. */
  from?: string;
  /** The inbox that is read, if it is another one than `from`. */
  inbox?: string;
  /** The tools that the model gets; all by default. */
  tools?: readonly ToolName[];
  /** The tools before which the framework asks a person. The Vercel AI SDK does so since version 6. */
  needsApproval?: readonly ToolName[];
  /** One of these for each loop of an agent: a repeated identical call is answered from its first result. */
  calls?: FirstResults;
}

export interface EmailTool {
  name: ToolName;
  description: string;
  /** JSON schema. */
  parameters: Definition["parameters"];
  needsApproval: boolean;
  /** Returns refusals as results, because many frameworks retry a call that throws. */
  run(input: Record<string, unknown>, callId?: string, signal?: AbortSignal): Promise<ToolAnswer>;
}

/** Results of one loop, by tool and arguments. Works for tools of your own too. */
export class FirstResults {
  readonly #results = new Map<string, Promise<unknown>>();

  /** The first result of a call with these arguments. A call that threw, or whose result `final` denies, is made again. */
  async run<T>(
    name: string,
    input: unknown,
    call: () => Promise<T>,
    final: (result: T) => boolean = () => true,
  ): Promise<T> {
    const key = `${name} ${canonical(input)}`;
    const known = this.#results.get(key) as Promise<T> | undefined;
    if (known !== undefined) return known;
    const result = call();
    this.#results.set(key, result);
    const forget = (): boolean => this.#results.delete(key);
    result.then((value) => final(value) || forget(), forget);
    return result;
  }
}

export function emailTools(mo: Mailonce, options: ToolOptions = {}): EmailTool[] {
  const { tools, calls, needsApproval = [] } = options;
  for (const wanted of [...(tools ?? []), ...needsApproval]) {
    if (!TOOLS.some(({ name }) => name === wanted)) throw new TypeError(`there is no tool ${wanted}`);
  }
  return TOOLS.filter(({ name }) => tools === undefined || tools.includes(name)).map((definition) => {
    const { name, description, acts } = definition;
    const [parameters, fixed] = withInbox(definition, options);
    return {
      name,
      description,
      parameters,
      needsApproval: needsApproval.includes(name),
      run: (input, callId, signal) => {
        const call = (): Promise<ToolAnswer> => mo.callTool(name, { ...input, ...fixed }, { callId, signal });
        return answered(acts && calls ? () => calls.run(name, input, call, didSomething) : call);
      },
    };
  });
}

/** The schema without `inbox` where the options decide it, and its value. */
function withInbox({ name, parameters }: Definition, options: ToolOptions): [Definition["parameters"], object] {
  const inbox = name === "send_email" ? options.from : (options.inbox ?? options.from);
  if (inbox === undefined || !("inbox" in parameters.properties)) return [parameters, {}];
  const { inbox: _, ...properties } = parameters.properties;
  return [{ ...parameters, properties }, { inbox }];
}

/** The same schema with every argument required, as strict modes demand. Optional ones may be null. */
export function strict(parameters: Definition["parameters"]): Required<Definition["parameters"]> {
  return { ...parameters, required: Object.keys(parameters.properties) };
}

/** Whether a result has the email or the code of the call. Of others, such as `leased`, the next one may differ. */
const didSomething = (answer: ToolAnswer): boolean => "email" in answer || "value" in answer;

async function answered(call: () => Promise<ToolAnswer>): Promise<ToolAnswer> {
  try {
    return await call();
  } catch (error) {
    if (!(error instanceof MailonceError)) throw error;
    if (error.code === "aborted") throw error.cause; // the framework ended it, and knows its own reason
    return toAnswer(error);
  }
}

/** JSON with its members in order, so that equal arguments are equal texts. */
function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join()}]`;
  if (typeof value !== "object" || value === null) return JSON.stringify(value) ?? "null";
  const members = Object.entries(value)
    .filter(([, inner]) => inner !== undefined)
    .sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${members.map(([name, inner]) => `${JSON.stringify(name)}:${canonical(inner)}`).join()}}`;
}
