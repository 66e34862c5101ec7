// Inboxes: waiting for messages, consuming codes and links, leasing work.

import { at, type CallOptions, type Caller } from "./call.js";
import { HeldLease, RENEWAL } from "./lease.js";
import type { Messages } from "./messages.js";
import { each } from "./page.js";
import type {
  WaitResult,
  Artifact,
  ConsumeMatch,
  Inbox,
  InboxPage,
  InboxPatch,
  Message,
  MessagePage,
  NewInbox,
  NewWatch,
  NextMessages,
  WorkItem,
  ConsumedArtifact,
  WorkItemPage,
  Watch,
} from "./wire.js";

export interface WaitFor {
  /** Seconds to wait; 30 by default, without a limit. */
  timeout?: number;
  /** Only messages after this cursor. */
  after?: string;
  /** The sender: an address, or `@domain`. */
  from?: string;
  subject?: string;
  has?: Artifact["type"];
  watch?: string;
  /** As in `consume`: only new messages with a code or link that nobody else consumed. */
  for?: string;
}

export interface MessageQuery {
  limit?: number;
  cursor?: string | null;
  after?: string;
  from?: string;
  subject?: string;
  has?: Artifact["type"];
  state?: Message["state"];
  label?: string;
  thread?: string;
}

export interface WorkOptions extends Omit<NextMessages, "limit" | "wait"> {
  /** Ends the loop after the current message. */
  signal?: AbortSignal;
  /** Seconds before a message whose work threw is offered again; 30 by default. */
  delay_s?: number;
  /** Without it, an error of your work ends the loop and is thrown. */
  onError?: (error: unknown, message: Message) => void;
}

/** The server waits at most a minute per call; a longer wait takes several calls. */
const MAX_SERVER_WAIT_S = 50;

export class Inboxes {
  readonly #call: Caller;
  readonly #messages: Messages;
  constructor(call: Caller, messages: Messages) {
    this.#call = call;
    this.#messages = messages;
  }

  create(body: NewInbox = {}, options?: CallOptions): Promise<Inbox> {
    return this.#call.json({ method: "POST", path: "/v1/inboxes", body, name: "mint" }, options);
  }

  /** `inbox` is an id or an address, here and in every other call. */
  get(inbox: string, options?: CallOptions): Promise<Inbox> {
    return this.#call.json({ method: "GET", path: `/v1/inboxes/${at(inbox)}` }, options);
  }

  list(query: { limit?: number; cursor?: string | null } = {}, options?: CallOptions): Promise<InboxPage> {
    return this.#call.json({ method: "GET", path: "/v1/inboxes", query }, options);
  }

  each(query: { limit?: number } = {}, options?: CallOptions): AsyncGenerator<Inbox, void, undefined> {
    return each(null, (cursor) => this.list({ ...query, cursor }, options));
  }

  update(inbox: string, body: InboxPatch, options?: CallOptions): Promise<Inbox> {
    return this.#call.json({ method: "PATCH", path: `/v1/inboxes/${at(inbox)}`, body }, options);
  }

  delete(inbox: string, options?: CallOptions): Promise<Inbox> {
    return this.#call.json({ method: "DELETE", path: `/v1/inboxes/${at(inbox)}` }, options);
  }

  messages(inbox: string, query: MessageQuery = {}, options?: CallOptions): Promise<MessagePage> {
    return this.#call.json({ method: "GET", path: `/v1/inboxes/${at(inbox)}/messages`, query }, options);
  }

  /** Waits for a message; `null` if none arrived in time. */
  async wait(inbox: string, what: WaitFor = {}, options?: CallOptions): Promise<WaitResult | null> {
    for (let left = Math.ceil(what.timeout ?? 30); ; left -= MAX_SERVER_WAIT_S) {
      const timeout = Math.min(left, MAX_SERVER_WAIT_S);
      const query = { ...what, timeout };
      const arrived = await this.#call.json<WaitResult | undefined>(
        { method: "GET", path: `/v1/inboxes/${at(inbox)}/wait`, query, hold: timeout },
        options,
      );
      if (arrived !== undefined) return arrived;
      if (left <= MAX_SERVER_WAIT_S) return null;
    }
  }

  /** Consumes the newest matching code or link once, `for` one account, workflow or run. `timeout` waits for it, up to 60 s. */
  async consume(inbox: string, body: ConsumeMatch, options?: CallOptions): Promise<Artifact> {
    const taken = await this.#call.json<ConsumedArtifact>(
      { method: "POST", path: `/v1/inboxes/${at(inbox)}/consume`, body, hold: body.timeout ?? 0 },
      options,
    );
    return taken.artifact;
  }

  /** Creates a watch: `wait` and `consume` with its id see only messages that arrive from now on. */
  watch(inbox: string, body: NewWatch = {}, options?: CallOptions): Promise<Watch> {
    return this.#call.json({ method: "POST", path: `/v1/inboxes/${at(inbox)}/watches`, body, name: "mint" }, options);
  }

  /** Leases up to `limit` unanswered messages, each with its thread, that nobody else has leased. */
  async next(inbox: string, body: NextMessages = {}, options?: CallOptions): Promise<WorkItem[]> {
    const page = await this.#call.json<WorkItemPage>(
      { method: "POST", path: `/v1/inboxes/${at(inbox)}/next`, body, hold: body.wait ?? 0, name: "mint" },
      options,
    );
    return page.data;
  }

  /**
   * Works on one message after the other. The lease is renewed while `work` runs; the message is acked when it returns, and
   * returned when it throws. Ends with `signal`.
   */
  async work(
    inbox: string,
    work: (message: Message, lease: HeldLease) => Promise<unknown>,
    options: WorkOptions = {},
  ): Promise<void> {
    const { signal, delay_s = 30, onError, ...next } = options;
    const ttl = next.ttl_s ?? 60;
    while (!signal?.aborted) {
      let offers: WorkItem[];
      try {
        offers = await this.next(inbox, { ...next, ttl_s: ttl, limit: 1, wait: MAX_SERVER_WAIT_S }, { signal });
      } catch (error) {
        if (signal?.aborted) return;
        throw error;
      }
      for (const offer of offers) {
        const failed = await this.#one(offer, ttl, delay_s, work);
        if (failed === undefined) continue;
        if (onError === undefined) throw failed.error;
        onError(failed.error, offer.message);
      }
    }
  }

  async #one(
    offer: WorkItem,
    ttl: number,
    delay_s: number,
    work: (message: Message, lease: HeldLease) => Promise<unknown>,
  ): Promise<{ error: unknown } | undefined> {
    const { message, lease } = offer;
    const renew = async () =>
      (await this.#messages.extend(message.id, { lease: lease.token, ttl_s: ttl }, RENEWAL)).lease;
    const held = new HeldLease(lease, ttl, renew, () => this.#messages.ack(message.id, { lease: lease.token }));
    try {
      await work(message, held);
      await held.release();
      return undefined;
    } catch (error) {
      await held.stop();
      // Report the work's own error. A message that cannot be returned is offered again when its lease expires.
      if (!held.signal.aborted) {
        await this.#messages.nack(message.id, { lease: lease.token, delay_s }).catch(() => undefined);
      }
      return { error };
    }
  }
}
