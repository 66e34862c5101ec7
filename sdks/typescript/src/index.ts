// The client: one object, one member for each kind of thing.

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
   * Runs `work` once, whoever calls and however often, and gives its JSON result to every caller. Throws `busy` while
   * another caller runs it (see `wait`), `unknown` after a caller was lost half-way (see `verify`), `claim_failed` if it
   * failed for good, and `key_mismatch` for another fingerprint.
   */
  once<T>(key: string | ClaimIntent, work: (run: OnceRun) => Promise<T>, options: OnceOptions<T> = {}): Promise<T> {
    return once(this.#call, key, work, options);
  }

  /** Calls a tool of `/mcp` as a model would. Its errors are results; calls that fail otherwise throw. */
  callTool(name: string, input: Record<string, unknown>, options?: CallOptions): Promise<ToolAnswer> {
    return callTool(this.#call, name, input, options);
  }

  /** Any other call of the API, with the same repeats and errors. */
  request<T = unknown>(method: string, path: string, body?: unknown, options?: CallOptions): Promise<T> {
    // The key of this call would be the key of the claim.
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
