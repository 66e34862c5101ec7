// Sending. What names the wish is required by the types: an intent in the mail, or a key beside it.

import { at, type CallOptions, type Caller } from "./call.js";
import { MailonceError } from "./error.js";
import { each } from "./page.js";
import type { BatchReceipt, Email, EmailDetail, EmailPage, Intent, ResolveEmail, Send, SendReceipt } from "./wire.js";

/** A mail. */
export type Mail = Omit<Send, "intent"> & { intent?: Intent };
/** A mail whose key follows from what it is about. */
export type MailWithIntent = Mail & { intent: Intent };

export interface SendOptions extends CallOptions {
  /** Seconds to wait for the outcome, at most 60. Without it the answer comes once the mail is in the ledger. */
  wait?: number;
}
/** The key, where the mail has no intent. Derive it from your data; a random one protects nothing. */
export interface Keyed {
  idempotencyKey: string;
}
/** The way out: nothing names this mail, so it is tried once, and whoever calls twice may send two. */
export interface WithoutKey {
  withoutKey: true;
}
type Named = SendOptions & Partial<Keyed> & Partial<WithoutKey>;

export interface EmailQuery {
  state?: string;
  to?: string;
  key?: string;
  since?: string;
  until?: string;
  limit?: number;
  cursor?: string | null;
}

export class Emails {
  readonly #call: Caller;
  constructor(call: Caller) {
    this.#call = call;
  }

  /** Sends a mail once, however often it is called under one key. */
  send(mail: MailWithIntent, options?: SendOptions): Promise<SendReceipt>;
  send(mail: Mail, options: SendOptions & Keyed): Promise<SendReceipt>;
  send(mail: Mail, options: SendOptions & WithoutKey): Promise<SendReceipt>;
  async send(mail: Mail, options: Named = {}): Promise<SendReceipt> {
    const repeat = named(mail.intent !== undefined && mail.intent !== null, options);
    return this.#call.json(
      { method: "POST", path: "/v1/emails", body: mail, repeat, hold: options.wait, headers: prefer(options.wait) },
      options,
    );
  }

  /** Sends up to 1,000 mails under one key; every item is sent once, also when the batch is repeated. */
  batch(mails: readonly MailWithIntent[], options?: SendOptions & { permissive?: boolean }): Promise<BatchReceipt>;
  batch(mails: readonly Mail[], options: SendOptions & Keyed & { permissive?: boolean }): Promise<BatchReceipt>;
  batch(mails: readonly Mail[], options: SendOptions & WithoutKey & { permissive?: boolean }): Promise<BatchReceipt>;
  async batch(mails: readonly Mail[], options: Named & { permissive?: boolean } = {}): Promise<BatchReceipt> {
    const repeat = named(
      mails.every((mail) => mail.intent),
      options,
    );
    const headers = { "x-batch-validation": options.permissive ? "permissive" : undefined };
    return this.#call.json({ method: "POST", path: "/v1/emails/batch", body: mails, repeat, headers }, options);
  }

  get(id: string, options?: CallOptions): Promise<EmailDetail> {
    return this.#call.json({ method: "GET", path: `/v1/emails/${at(id)}` }, options);
  }

  list(query: EmailQuery = {}, options?: CallOptions): Promise<EmailPage> {
    return this.#call.json({ method: "GET", path: "/v1/emails", query }, options);
  }

  /** All pages of `list`, one email after the other. */
  each(query: EmailQuery = {}, options?: CallOptions): AsyncGenerator<Email, void, undefined> {
    return each(query.cursor, (cursor) => this.list({ ...query, cursor }, options));
  }

  /** Takes an email back before it is handed off. */
  cancel(id: string, options?: CallOptions): Promise<Email> {
    return this.#call.json({ method: "POST", path: `/v1/emails/${at(id)}/cancel`, name: "mint" }, options);
  }

  /** Sends it again on purpose: one version more, once. */
  resend(id: string, body: { reason?: string } = {}, options?: CallOptions): Promise<SendReceipt> {
    return this.#call.json({ method: "POST", path: `/v1/emails/${at(id)}/resend`, body, name: "mint" }, options);
  }

  /** Says what became of an email whose outcome is unknown. */
  resolve(id: string, body: ResolveEmail, options?: CallOptions): Promise<Email> {
    return this.#call.json({ method: "POST", path: `/v1/emails/${at(id)}/resolve`, body, name: "mint" }, options);
  }

  reschedule(id: string, body: { scheduled_at: string }, options?: CallOptions): Promise<Email> {
    return this.#call.json({ method: "PATCH", path: `/v1/emails/${at(id)}`, body }, options);
  }
}

export function prefer(wait: number | undefined): Record<string, string | undefined> {
  return { Prefer: wait === undefined ? undefined : `wait=${wait}` };
}

/** Whether the send may be repeated. Callers without types are told what the types would have told them. */
function named(intent: boolean, options: Named): boolean {
  if (intent || options.idempotencyKey !== undefined) return true;
  if (options.withoutKey === true) return false;
  throw new MailonceError({
    code: "key_required",
    detail: "neither an intent nor a key names this mail",
    next: "Pass intent {type, entity}, or idempotencyKey, or withoutKey: true if a second mail does no harm.",
  });
}
