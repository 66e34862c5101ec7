// Errors of calls.

/** Whether the same call may be retried: never, unchanged with the same key, or later. */
export type Retry = "never" | "same" | "later";

/**
 * The error of a call. Branch on `code`; `next` is one sentence that a person or a model can act on. The codes of
 * the server are documented under `/docs/errors`; the SDK adds `no_answer` and `aborted`,
 * where the call may or may not have arrived.
 */
export class MailonceError extends Error {
  override readonly name = "MailonceError";
  readonly code: string;
  /** The HTTP status; 0 if there was no response. */
  readonly status: number;
  /** What is wrong. */
  readonly detail: string;
  readonly retry: Retry;
  readonly next: string;
  /** The URL of the call, if there was one. */
  readonly url: string | undefined;
  /** The URL of the page about this code, if the server answered. */
  readonly docsUrl: string | undefined;
  /** The invalid field, if the error is about one. */
  readonly field: string | undefined;
  /** Further members of the problem, depending on the code: `differing_fields`, `original_email`, `holder` … */
  readonly details: Readonly<Record<string, unknown>>;

  constructor(problem: {
    code: string;
    detail: string;
    next: string;
    retry?: Retry;
    status?: number;
    field?: string | undefined;
    url?: string | undefined;
    docsUrl?: string | undefined;
    details?: Record<string, unknown>;
    cause?: unknown;
  }) {
    const places = [problem.url, problem.docsUrl && `see ${problem.docsUrl}`].filter(Boolean).join(", ");
    const message = `${problem.code}: ${problem.detail}${places && ` (${places})`}; next: ${problem.next}`;
    super(message, problem.cause === undefined ? undefined : { cause: problem.cause });
    this.code = problem.code;
    this.detail = problem.detail;
    this.url = problem.url;
    this.docsUrl = problem.docsUrl;
    this.status = problem.status ?? 0;
    this.retry = problem.retry ?? "never";
    this.next = problem.next;
    this.field = problem.field;
    this.details = problem.details ?? {};
  }
}

/** The error of an unsuccessful response. A proxy in between may not send an RFC 9457 problem. */
export function refusal(status: number, text: string, url: string, baseUrl: string): MailonceError {
  const whole = object(text);
  // At `/mcp` the problem is in an error of JSON-RPC.
  const { message, data } = (whole["error"] ?? {}) as { message?: unknown; data?: object };
  const body: Record<string, unknown> = message === undefined ? whole : { detail: message, ...data };
  const said = (name: string): string | undefined =>
    typeof body[name] === "string" ? (body[name] as string) : undefined;
  const again = status === 408 || status === 425 || status === 429 || status >= 500;
  const retry = said("retry");
  return new MailonceError({
    code: said("code") ?? "no_problem",
    detail: said("detail") ?? `the server answered ${status}`,
    next:
      said("next") ??
      (again ? "Make the same call again with the same key." : "Look at the address and the key of the server."),
    retry: retry === "never" || retry === "same" || retry === "later" ? retry : again ? "same" : "never",
    status,
    field: said("field"),
    url,
    docsUrl: said("type")?.replace(/^\//, `${baseUrl}/`),
    details: body,
  });
}

/** No response: the call may or may not have arrived. */
export function noAnswer(detail: string, cause?: unknown, url?: string): MailonceError {
  return new MailonceError({
    code: "no_answer",
    detail,
    retry: "same",
    next: "Make the same call again with the same key; whatever was accepted before will be found.",
    url,
    cause,
  });
}

/** An error as the result of a tool: many frameworks repeat a call that throws. */
export function toAnswer({ code, detail, field, next, retry }: MailonceError): Record<string, unknown> & {
  status: string;
  next: string;
} {
  return { status: code === "no_answer" ? code : "refused", code, detail, ...(field && { field }), retry, next };
}

/** The caller ended the call by its `signal`, whose reason is the `cause`. */
export function aborted({ reason }: AbortSignal): MailonceError {
  const why = (reason as Partial<Error> | null | undefined)?.message ?? String(reason);
  return new MailonceError({
    code: "aborted",
    detail: `the caller ended the call: ${why}`,
    retry: "same",
    next: "It may have arrived; make the same call again with the same key to find out.",
    cause: reason,
  });
}

function object(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : {};
  } catch {
    return {};
  }
}
