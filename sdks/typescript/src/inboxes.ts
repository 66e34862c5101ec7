// Inboxes: waiting for mail, taking codes and links, taking work.

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
  /** Seconds to wait; 30 by default, as long as you like. */
  timeout?: number;
  /** A cursor: only mail behind it counts. */
  after?: string;
  /** An address, or `@domain`. */
  from?: string;
  subject?: string;
  has?: "code" | "link" | (string & {});
  watch?: string;
  /** Who takes the code or link, as in `consume`: only new mail counts, with something that nobody else took. */
  for?: string;
}

export interface MessageQuery {
  limit?: number;
  cursor?: string | null;
  after?: string;
  from?: string;
  subject?: string;
  has?: string;
  state?: string;
  label?: string;
  thread?: string;
}

export interface WorkOptions extends Omit<NextMessages, "limit" | "wait"> {
  /** Ends the loop after the message at hand. */
  signal?: AbortSignal;
  /** How long others leave a message alone whose work threw; 30 s by default. */
  delay_s?: number;
  /** Without it, an error of your work ends the loop and is thrown on. */
  onError?: (error: unknown, message: Message) => void;
}

/** The server holds a wait for at most a minute; longer ones are asked again. */
const LONGEST_HOLD = 50;

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

  /** By id or address, as in every other call. */
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

  /** Waits for a message; `null` when none came in time. */
  async wait(inbox: string, what: WaitFor = {}, options?: CallOptions): Promise<WaitResult | null> {
    for (let left = Math.ceil(what.timeout ?? 30); ; left -= LONGEST_HOLD) {
      const timeout = Math.min(left, LONGEST_HOLD);
      const query = { ...what, timeout };
      const arrived = await this.#call.json<WaitResult | undefined>(
        { method: "GET", path: `/v1/inboxes/${at(inbox)}/wait`, query, hold: timeout },
        options,
      );
      if (arrived !== undefined) return arrived;
      if (left <= LONGEST_HOLD) return null;
    }
  }

  /** Takes the newest code or link that matches, once, `for` one account, workflow or run; `timeout` waits for it, up to 60 s. */
  async consume(inbox: string, body: ConsumeMatch, options?: CallOptions): Promise<Artifact> {
    const taken = await this.#call.json<ConsumedArtifact>(
      { method: "POST", path: `/v1/inboxes/${at(inbox)}/consume`, body, hold: body.timeout ?? 0 },
      options,
    );
    return taken.artifact;
  }

  /** Begins a watch: waits and consumes that name it see only mail that comes after now. */
  watch(inbox: string, body: NewWatch = {}, options?: CallOptions): Promise<Watch> {
    return this.#call.json({ method: "POST", path: `/v1/inboxes/${at(inbox)}/watches`, body, name: "mint" }, options);
  }

  /** Takes up to `limit` unanswered messages that nobody works on, each with the lease of its thread. */
  async next(inbox: string, body: NextMessages = {}, options?: CallOptions): Promise<WorkItem[]> {
    const page = await this.#call.json<WorkItemPage>(
      { method: "POST", path: `/v1/inboxes/${at(inbox)}/next`, body, hold: body.wait ?? 0, name: "mint" },
      options,
    );
    return page.data;
  }

  /**
   * Takes one message after the other: the lease is renewed while `work` runs, the message is acked when it returns and
   * given back when it throws. Ends with `signal`.
   */
  async work(
    inbox: string,
    work: (message: Message, lease: HeldLease) => Promise<unknown>,
    options: WorkOptions = {},
  ): Promise<void> {
    const { signal, delay_s = 30, onError, ...wish } = options;
    const ttl = wish.ttl_s ?? 60;
    while (!signal?.aborted) {
      let offers: WorkItem[];
      try {
        offers = await this.next(inbox, { ...wish, ttl_s: ttl, limit: 1, wait: LONGEST_HOLD }, { signal });
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
      // The work's own error is the one to tell; a message that is not given back is offered again when its lease lapses.
      if (!held.signal.aborted) {
        await this.#messages.nack(message.id, { lease: lease.token, delay_s }).catch(() => undefined);
      }
      return { error };
    }
  }
}
