// Webhooks: receivers of events, and the proof that a request comes from the server (Standard Webhooks).

import { at, type CallOptions, type Caller } from "./call.js";
import { MailonceError } from "./error.js";
import { hmac, joined } from "./sha256.js";
import type {
  Endpoint,
  EndpointPage,
  EndpointPatch,
  Event,
  NewEndpoint,
  Notice,
  NoticePage,
  Recover,
  Recovery,
  RotateEndpoint,
  EndpointTest,
} from "./wire.js";

type HeadersLike = { get(name: string): string | null } | Record<string, string | string[] | undefined>;

/**
 * Verifies a webhook and returns its event; throws `bad_signature`. Pass the body as received, not JSON
 * that was parsed and serialized again. A webhook may arrive twice: deduplicate by the header `webhook-id`.
 */
export function verifyWebhook(
  body: string | Uint8Array,
  headers: HeadersLike,
  secret: string | readonly string[],
  options: { toleranceSeconds?: number; now?: Date } = {},
): Event {
  const bytes = typeof body === "string" ? new TextEncoder().encode(body) : body;
  const said = (name: string): string => header(headers, `webhook-${name}`) ?? header(headers, `svix-${name}`) ?? "";
  const [id, time] = [said("id"), said("timestamp")];
  if (id === "" || !/^\d{1,12}$/.test(time)) throw forged("the headers of a notice are missing");
  const age = Math.abs((options.now ?? new Date()).getTime() / 1000 - Number(time));
  if (age > (options.toleranceSeconds ?? 300)) throw forged("the timestamp is too far from now");
  const signed = joined(new TextEncoder().encode(`${id}.${time}.`), bytes);
  const theirs = said("signature")
    .split(" ")
    .filter((part) => part.startsWith("v1,"));
  for (const one of typeof secret === "string" ? [secret] : secret) {
    const ours = `v1,${base64(hmac(bytesOf(one), signed))}`;
    if (theirs.some((their) => same(their, ours))) return JSON.parse(new TextDecoder().decode(bytes)) as Event;
  }
  throw forged("no signature fits");
}

export class Webhooks {
  readonly #call: Caller;
  readonly verify = verifyWebhook;
  constructor(call: Caller) {
    this.#call = call;
  }

  /** Creates an endpoint. Only this response contains `secret`. */
  create(body: NewEndpoint, options?: CallOptions): Promise<Endpoint> {
    return this.#call.json({ method: "POST", path: "/v1/endpoints", body, name: "mint" }, options);
  }

  get(id: string, options?: CallOptions): Promise<Endpoint> {
    return this.#call.json({ method: "GET", path: `/v1/endpoints/${at(id)}` }, options);
  }

  list(query: { limit?: number; cursor?: string | null } = {}, options?: CallOptions): Promise<EndpointPage> {
    return this.#call.json({ method: "GET", path: "/v1/endpoints", query }, options);
  }

  update(id: string, body: EndpointPatch, options?: CallOptions): Promise<Endpoint> {
    return this.#call.json({ method: "PATCH", path: `/v1/endpoints/${at(id)}`, body }, options);
  }

  delete(id: string, options?: CallOptions): Promise<Endpoint> {
    return this.#call.json({ method: "DELETE", path: `/v1/endpoints/${at(id)}` }, options);
  }

  /** Creates a new secret. Earlier secrets keep signing for `previous_secret_ttl`. */
  rotate(id: string, body: RotateEndpoint = {}, options?: CallOptions): Promise<Endpoint> {
    return this.#post(id, "rotate", body, options);
  }

  pause(id: string, options?: CallOptions): Promise<Endpoint> {
    return this.#post(id, "pause", undefined, options);
  }

  resume(id: string, options?: CallOptions): Promise<Endpoint> {
    return this.#post(id, "resume", undefined, options);
  }

  test(id: string, options?: CallOptions): Promise<EndpointTest> {
    return this.#post(id, "test", undefined, options);
  }

  /** Resends the notices that failed since a given time. */
  recover(id: string, body: Recover, options?: CallOptions): Promise<Recovery> {
    return this.#post(id, "recover", body, options);
  }

  notices(
    id: string,
    query: { state?: Notice["state"]; type?: Notice["type"]; about?: string; limit?: number; cursor?: string } = {},
    options?: CallOptions,
  ): Promise<NoticePage> {
    return this.#call.json({ method: "GET", path: `/v1/endpoints/${at(id)}/notices`, query }, options);
  }

  replay(notice: string, options?: CallOptions): Promise<Notice> {
    return this.#call.json({ method: "POST", path: `/v1/notices/${at(notice)}/replay`, name: "mint" }, options);
  }

  #post<T>(id: string, verb: string, body: unknown, options?: CallOptions): Promise<T> {
    return this.#call.json({ method: "POST", path: `/v1/endpoints/${at(id)}/${verb}`, body, name: "mint" }, options);
  }
}

function forged(detail: string): MailonceError {
  return new MailonceError({ code: "bad_signature", detail, next: "Answer 401 and do not act on it.", status: 401 });
}

function header(headers: HeadersLike, name: string): string | undefined {
  if (typeof headers.get === "function")
    return (headers as { get(name: string): string | null }).get(name) ?? undefined;
  const found = Object.entries(headers).find(([key]) => key.toLowerCase() === name)?.[1];
  return Array.isArray(found) ? found.join(" ") : (found as string | undefined);
}

function bytesOf(secret: string): Uint8Array {
  try {
    return Uint8Array.from(atob(secret.replace(/^whsec_/, "")), (letter) => letter.charCodeAt(0));
  } catch {
    throw new MailonceError({
      code: "invalid_field",
      detail: "the secret is not whsec_ and base64",
      next: "Pass the secret that was shown when the endpoint was made.",
      field: "secret",
    });
  }
}

const base64 = (bytes: Uint8Array): string => btoa(String.fromCharCode(...bytes));

/** Compares in constant time, so that the response time does not reveal the signature. */
function same(one: string, other: string): boolean {
  let differs = one.length ^ other.length;
  for (let i = 0; i < other.length; i++) differs |= (one.charCodeAt(i) || 0) ^ other.charCodeAt(i);
  return differs === 0;
}
