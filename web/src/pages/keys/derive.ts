// Derives a key from an intent as the server does: "i1_" and the SHA-256 of canonical JSON.
import type { Schema } from "../../api/types";

type Intent = Schema["IntentBody"];

/** The members are in alphabetical order, which is what RFC 8785 asks for. */
function canonical({ entity, period, type, version }: Intent, to: string[]): string {
  const addresses = [...new Set(to.map((address) => address.toLowerCase()))].sort();
  return JSON.stringify({ entity, ...(period ? { period } : {}), to: addresses, type, v: version ?? 1 });
}

export const derivationText = (intent: Intent, to: string[]): string => `key = "i1_" + hex(SHA-256(x))\nx   = ${canonical(intent, to)}`;

/** Browsers offer SHA-256 only to pages from this machine or by HTTPS; elsewhere this is rejected. */
export async function deriveKey(intent: Intent, to: string[]): Promise<string> {
  const hash = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(canonical(intent, to)));
  return `i1_${[...new Uint8Array(hash)].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}
