// Problems and receipts of the in-memory server, and how it compares emails.

import { bareAddress } from "./key.js";
import type { SentMail } from "./testing.js";
import type { CallTrace, SuppressedCall } from "./wire.js";

export class Refused extends Error {
  constructor(
    readonly status: number,
    readonly problem: Record<string, unknown>,
  ) {
    super(String(problem["code"]));
  }
}

export const refused = (status: number, code: string, detail: string, more: object = {}): Refused =>
  new Refused(status, {
    status,
    code,
    detail,
    title: code,
    type: `/docs/errors/${code}`,
    retry: "never",
    next: `See /docs/errors/${code}.`,
    ...more,
  });

export type Body = Record<string, unknown>;
export type Message = Body & { id: string; inbox: string };
export type Bound = { mail: SentMail; suppressed: SuppressedCall[] };

/** The `Mailonce-Call-Id` of a request. */
export function callTrace(headers: Headers): CallTrace | undefined {
  const id = headers.get("mailonce-call-id");
  return id ? { id: percentDecoded(id) } : undefined;
}

/** Percent-decodes a text; one with an incomplete escape is returned unchanged. */
function percentDecoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Fields that `first_wins` allows to differ. */
export const CONTENT_FIELDS = new Set(["subject", "text", "html", "headers", "tags", "metadata"]);
export const COMPARED_FIELDS = [
  "from",
  "to",
  "cc",
  "bcc",
  "reply_to",
  "subject",
  "text",
  "html",
  "headers",
  "attachments",
  "tags",
  "metadata",
  "scheduled_at",
] as const;

export function receipt(bound: Bound, outcome: string, differs: boolean): Body {
  const { id, key } = bound.mail;
  const first = outcome === "first";
  return {
    id,
    state: first ? "queued" : "sent",
    rev: first ? 1 : 4,
    message_id: `<${id}@mailonce.test>`,
    created_at: now(),
    next: first ? "Accepted; it will be sent once, so do not send it again." : "Already sent; there is nothing to do.",
    dedupe: { outcome, key, expires_at: null, suppressed: bound.suppressed.length, payload_differs: differs },
  };
}

/** A field in the form in which it is compared: order and case of recipients, line endings and empty values are ignored. */
export function comparable(field: string, value: unknown): string {
  if (value === undefined || value === null || value === "" || (Array.isArray(value) && value.length === 0)) return "";
  if (["to", "cc", "bcc", "reply_to"].includes(field))
    return [value]
      .flat()
      .map((one) => bareAddress(String(one)) ?? String(one))
      .sort()
      .join();
  return JSON.stringify(value).replace(/\\r\\n/g, "\\n");
}

export function matches(message: Message, query: URLSearchParams): boolean {
  const from = query.get("from");
  const sender = (message["from"] as { address: string }).address;
  const has = query.get("has");
  const subject = query.get("subject");
  return (
    (from === null || (from.startsWith("@") ? sender.endsWith(from) : sender === from)) &&
    (has === null || (message["has"] as string[]).includes(has)) &&
    (subject === null || String(message["subject"]).toLowerCase().includes(subject.toLowerCase()))
  );
}

export function found<T>(value: T | undefined, what: string): T {
  if (value === undefined) throw refused(404, "not_found", `there is no ${what}`);
  return value;
}

export function unsupported(what: string): Refused {
  return refused(501, "not_in_double", `the double does not know ${what}`, {
    next: "Test this call against mailonce dev.",
  });
}

export const now = (): string => new Date().toISOString();
