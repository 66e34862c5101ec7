// Derives the idempotency key of an intent exactly as the server does. Vectors: sdks/contract/keys.json.

import { MailonceError } from "./error.js";
import { sha256 } from "./sha256.js";
import type { Intent } from "./wire.js";

/**
 * `"i1_" + hex(SHA-256(JCS({entity, period?, to, type, v})))`. Sends do not need it, because the server derives the same
 * key. Use it to look up an email by key, or to identify another side effect.
 */
export function deriveKey(intent: Intent, to: string | readonly string[]): string {
  const named: Record<string, unknown> = { entity: word("entity", intent.entity) };
  if (intent.period !== undefined && intent.period !== null) named["period"] = word("period", intent.period);
  // JSON.stringify writes strings as RFC 8785 does, and the members stand in its order already.
  named["to"] = recipients(typeof to === "string" ? [to] : to);
  named["type"] = word("type", intent.type);
  named["v"] = version(intent.version ?? 1);
  const digest = sha256(new TextEncoder().encode(JSON.stringify(named)));
  return "i1_" + Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Keys are 1 to 256 printable ASCII characters; others are refused without a call. */
export function checkKey(key: string): string {
  if (typeof key === "string" && /^[\x20-\x7e]{1,256}$/.test(key) && key.trim() !== "") return key;
  throw new MailonceError({
    code: "invalid_key",
    detail: "a key is 1 to 256 printable ASCII characters",
    next: "Take the key from your own task: the order, the run, the message you answer.",
    field: "Idempotency-Key",
  });
}

function invalid(field: string, detail: string): MailonceError {
  return new MailonceError({ code: "invalid_field", detail: `${field} ${detail}`, next: `Mend ${field}.`, field });
}

function word(name: string, value: unknown): string {
  const field = `intent.${name}`;
  if (typeof value !== "string") throw invalid(field, "must be text");
  // Code points are counted, as the server counts them; a lone surrogate has no UTF-8.
  const length = Array.from(value).length;
  if (length < 1 || length > 256) throw invalid(field, "must have 1 to 256 characters");
  if (/[\u0000-\u001f\u007f-\u009f]|\p{Surrogate}/u.test(value))
    throw invalid(field, "must not contain control characters");
  return value;
}

function version(value: unknown): number {
  if (typeof value === "number" && Number.isInteger(value) && value >= 1 && value <= 4294967295) return value;
  throw invalid("intent.version", "must be a whole number from 1 to 4294967295");
}

function recipients(to: readonly string[]): string[] {
  if (to.length === 0) throw invalid("to", "must name somebody");
  const bare = to.map((text, i) => {
    const address = bareAddress(text);
    if (address === undefined) throw invalid(`to[${i}]`, "is no address");
    return address;
  });
  // The default order of strings is that of UTF-16 code units, as in RFC 8785.
  return [...new Set(bare)].sort();
}

/** The address as it is compared: without a display name, in lower case, its domain as A-label. */
export function bareAddress(text: string): string | undefined {
  if (typeof text !== "string" || /[\u0000-\u001f\u007f-\u009f]/.test(text)) return undefined;
  const trimmed = text.trim();
  const [, name, inner] = /^([^]*)<([^<]*)>$/.exec(trimmed) ?? [];
  if (inner === undefined ? /[<>]/.test(trimmed) : /^\s*"(?![^]*"\s*$)/.test(name ?? "")) return undefined;
  const address = (inner ?? trimmed).trim();
  const at = address.lastIndexOf("@");
  const local = address.slice(0, Math.max(at, 0)).replace(/[A-Z]+/g, (letters) => letters.toLowerCase());
  if (!local.split(".").every((atom) => /^(?:[a-z0-9!#$%&'*+\-/=?^_`{|}~]|[^\x00-\x7f\s])+$/u.test(atom)))
    return undefined;
  const domain = aLabel(address.slice(at + 1));
  const octets = new TextEncoder().encode(local).length;
  if (domain === undefined || octets > 64 || octets + 1 + domain.length > 254) return undefined;
  return `${local}@${domain}`;
}

/** The domain in its ASCII form. URL does what UTS 46 says, non-transitional, in every runtime. */
function aLabel(domain: string): string | undefined {
  let ascii = domain.replace(/[A-Z]+/g, (letters) => letters.toLowerCase());
  if (/[^\x00-\x7f]|xn--/.test(ascii)) {
    // What URL would take for something else than a part of a host.
    if (/[\s%/?#@:\\[\]]/.test(ascii)) return undefined;
    try {
      // Older tables make two letters of the capital sharp s.
      ascii = new URL(`http://${ascii.replace(/\u1e9e/g, "\u00df")}`).hostname;
    } catch {
      return undefined;
    }
  }
  const fits = ascii.split(".").every((label) => /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/.test(label));
  return fits && ascii.length <= 253 && !/^[0-9.]+$/.test(ascii) ? ascii : undefined;
}
