// The client: one object, with a member for each resource.

import { Caller, type CallOptions, type ClientOptions } from "./call.js";
import { Emails } from "./emails.js";
import { Events } from "./events.js";
import { Inboxes } from "./inboxes.js";
import { callTool, type ToolAnswer } from "./mcp.js";
import { Artifacts, Messages } from "./messages.js";
import { type ClaimIntent, once, type OnceOptions, type OnceRun } from "./once.js";
import { Threads } from "./threads.js";
import { Webhooks } from "./webhooks.js";

export class Mailonce {
  readonly emails: Emails;
  readonly inboxes: Inboxes;
  readonly messages: Messages;
  readonly threads: Threads;
  readonly artifacts: Artifacts;
  readonly events: Events;
  readonly webhooks: Webhooks;
  readonly #call: Caller;

  constructor(options: ClientOptions = {}) {
    const call = new Caller(options);
    this.#call = call;
    this.emails = new Emails(call);
    this.messages = new Messages(call);
    this.inboxes = new Inboxes(call, this.messages);
    this.threads = new Threads(call);
    this.artifacts = new Artifacts(call);
    this.events = new Events(call);
    this.webhooks = new Webhooks(call);
  }

  /**
   * Runs `work` once, no matter who calls and how often, and returns its JSON result to every caller. Throws `busy` while
   * another caller runs it (see `wait`), `unknown` after a caller was lost half-way (see `verify`), `claim_failed` if it
   * failed for good, and `key_mismatch` for another fingerprint.
   */
  once<T>(key: string | ClaimIntent, work: (run: OnceRun) => Promise<T>, options: OnceOptions<T> = {}): Promise<T> {
    return once(this.#call, key, work, options);
  }

  /** Calls a tool of `/mcp` as a model would. Errors of the tool are results; other failures throw. */
  callTool(name: string, input: Record<string, unknown>, options?: CallOptions): Promise<ToolAnswer> {
    return callTool(this.#call, name, input, options);
  }

  /** Calls any other route of the API, with the same retries and errors. */
  request<T = unknown>(method: string, path: string, body?: unknown, options?: CallOptions): Promise<T> {
    // An idempotency key of this call would become the key of the claim.
    const name = method === "POST" && !/^\/v1\/claims(\?|$)/.test(path) ? "mint" : "nothing";
    return this.#call.json({ method, path, body, name }, options);
  }
}

export type { CallOptions, ClientOptions, Download } from "./call.js";
export type { EmailQuery, Keyed, Mail, MailWithIntent, SendOptions, WithoutKey } from "./emails.js";
export { MailonceError, type Retry } from "./error.js";
export type { EventQuery } from "./events.js";
export type { MessageQuery, WaitFor, WorkOptions } from "./inboxes.js";
export { bareAddress, deriveKey } from "./key.js";
export { HeldLease } from "./lease.js";
export type { ToolAnswer } from "./mcp.js";
export {
  type AfterError,
  type ClaimIntent,
  type OnceOptions,
  type OnceRun,
  onceTool,
  type OnceToolOptions,
  stepKey,
  type UnknownClaim,
} from "./once.js";
export type { ThreadQuery } from "./threads.js";
export { verifyWebhook } from "./webhooks.js";
export type * from "./wire.js";
