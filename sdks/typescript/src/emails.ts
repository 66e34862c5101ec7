// Sending. The types require what identifies the email: an intent in the email, or a key in the options.

import { at, type CallOptions, type Caller } from "./call.js";
import { MailonceError } from "./error.js";
import { each } from "./page.js";
import type { BatchReceipt, Email, EmailDetail, EmailPage, Intent, ResolveEmail, Send, SendReceipt } from "./wire.js";

/** An email. */
export type Mail = Omit<Send, "intent"> & { intent?: Intent };
/** An email whose idempotency key is derived from its intent. */
export type MailWithIntent = Mail & { intent: Intent };

export interface SendOptions extends CallOptions {
  /** Seconds to wait for the outcome, at most 60. Without it the server responds as soon as the email is stored. */
  wait?: number;
}
/** The idempotency key, if the email has no intent. Derive it from your data; a random key protects nothing. */
export interface Keyed {
  idempotencyKey: string;
}
/** Sends without an idempotency key: one try, and calling twice sends two emails. */
export interface WithoutKey {
  withoutKey: true;
}
type Named = SendOptions & Partial<Keyed> & Partial<WithoutKey>;

export interface EmailQuery {
  state?: Email["state"];
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

  /** Sends an email once, no matter how often it is called with the same key. */
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

  /** Sends up to 1,000 emails under one key; each is sent once, even if the batch is retried. */
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

  /** Cancels an email before it is handed off. */
  cancel(id: string, options?: CallOptions): Promise<Email> {
    return this.#call.json({ method: "POST", path: `/v1/emails/${at(id)}/cancel`, name: "mint" }, options);
  }

  /** Sends the email again on purpose, as its next version. */
  resend(id: string, body: { reason?: string } = {}, options?: CallOptions): Promise<SendReceipt> {
    return this.#call.json({ method: "POST", path: `/v1/emails/${at(id)}/resend`, body, name: "mint" }, options);
  }

  /** Records what happened to an email whose outcome is unknown. */
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

/** Whether the send may be retried. Throws what the type checker would have found. */
function named(intent: boolean, options: Named): boolean {
  if (intent || options.idempotencyKey !== undefined) return true;
  if (options.withoutKey === true) return false;
  throw new MailonceError({
    code: "key_required",
    detail: "neither an intent nor a key names this mail",
    next: "Pass intent {type, entity}, or idempotencyKey, or withoutKey: true if a second mail does no harm.",
  });
}
