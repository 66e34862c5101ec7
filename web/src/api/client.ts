// The typed client of the public API. The browser adds the session cookie; this adds the CSRF token and idempotency keys.
import { ApiProblem, problemOf, unreachable } from "./problem";

export type Query = Record<string, string | number | boolean | null | undefined>;

export interface CallOptions {
  /** One per intention of the user, made with `intention()`, so that a double click acts once. */
  key?: string;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

let csrfToken = "";
let onSignedOut: (problem: ApiProblem) => void = () => undefined;

/** Called by the session: the token of changing requests, and what to do when the session is over. */
export function configureClient(token: string, signedOut: (problem: ApiProblem) => void): void {
  csrfToken = token;
  onSignedOut = signedOut;
}

/** An idempotency key for one intention of the user. Keep it for every attempt of the same intention. */
export const intention = (): string => `ui-${crypto.randomUUID()}`;

export function withQuery(path: string, query: Query = {}): string {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") params.set(name, String(value));
  }
  const text = params.toString();
  return text ? `${path}?${text}` : path;
}

/** The response itself, for calls that need its status or headers. Throws `ApiProblem`. */
export async function call(method: string, path: string, body?: unknown, options: CallOptions = {}): Promise<Response> {
  const token = csrfToken;
  const headers: Record<string, string> = { accept: "application/json", ...options.headers };
  if (method !== "GET") headers["mailonce-csrf"] = token;
  if (body !== undefined) headers["content-type"] = "application/json";
  if (options.key) headers["idempotency-key"] = options.key;
  const response = await fetch(path, {
    method, headers, signal: options.signal, body: body === undefined ? undefined : JSON.stringify(body), cache: "no-store",
  }).catch((error: unknown) => {
    if (options.signal?.aborted) throw error;
    throw unreachable();
  });
  if (response.ok) return response;
  const problem = await problemOf(response);
  // A request of an earlier session says nothing about this one.
  if (response.status === 401 && token === csrfToken) onSignedOut(problem);
  throw problem;
}

async function json<T>(response: Response): Promise<T> {
  const text = await response.text();
  return (text ? JSON.parse(text) : undefined) as T;
}

export const get = async <T>(path: string, query?: Query, options?: CallOptions): Promise<T> =>
  json<T>(await call("GET", withQuery(path, query), undefined, options));

export const post = async <T>(path: string, body: unknown = {}, options?: CallOptions): Promise<T> =>
  json<T>(await call("POST", path, body, options));

export const patch = async <T>(path: string, body: unknown, options?: CallOptions): Promise<T> =>
  json<T>(await call("PATCH", path, body, options));

export const del = async <T>(path: string, body?: unknown, options?: CallOptions): Promise<T> =>
  json<T>(await call("DELETE", path, body, options));
