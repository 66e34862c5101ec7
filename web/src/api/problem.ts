// The error of every API call: the server's problem document (RFC 9457), or one of our own when there was no answer.

export interface ProblemDocument {
  status: number;
  code: string;
  title: string;
  detail: string;
  next?: string;
  retry?: "never" | "same" | "later";
  field?: string | null;
  /** Members that depend on the code, such as `differing_fields` and `original_email`. */
  [member: string]: unknown;
}

export class ApiProblem extends Error {
  constructor(readonly problem: ProblemDocument) {
    super(problem.detail || problem.title);
    this.name = "ApiProblem";
  }

  get status(): number {
    return this.problem.status;
  }

  get code(): string {
    return this.problem.code;
  }
}

const isDocument = (body: unknown): body is ProblemDocument =>
  typeof body === "object" && body !== null && "code" in body && "title" in body;

export async function problemOf(response: Response): Promise<ApiProblem> {
  const body: unknown = await response.json().catch(() => null);
  if (isDocument(body)) return new ApiProblem(body);
  // A proxy in between answers so while the server restarts.
  if (response.status >= 502 && response.status <= 504) return unreachable();
  return new ApiProblem({
    status: response.status,
    code: "",
    title: `The server answered ${response.status}`,
    detail: response.statusText || "The answer has no description.",
    next: "Reload the page. If it happens again, look at the server's log.",
  });
}

export const unreachable = (): ApiProblem =>
  new ApiProblem({
    status: 0,
    code: "",
    title: "The server does not answer",
    detail: "The request got no response.",
    next: "Check that mailonce is running, then try again. Repeating is safe.",
    retry: "same",
  });

/** Turns anything that was thrown into a problem that can be shown. */
export const asProblem = (error: unknown): ApiProblem =>
  error instanceof ApiProblem
    ? error
    : new ApiProblem({ status: 0, code: "", title: "The page failed", detail: String(error), next: "Reload the page." });

/** True for routes and objects that do not exist, such as a route that an older server does not have. */
export const isMissing = (error: unknown): boolean => error instanceof ApiProblem && error.status === 404;
