// A problem document for people: what went wrong, what to do, and where it is explained.
import type { ApiProblem, ProblemDocument } from "../api/problem";
import { Button } from "./Button";

export function ProblemBox({ problem }: { problem: ProblemDocument }) {
  return (
    <div class="problem-text">
      <strong>{problem.title}</strong>
      {problem.detail && problem.detail !== problem.title && <p>{problem.detail}</p>}
      {problem.next && <p class="muted">{problem.next}</p>}
      {problem.code && <p><a href={`/docs/errors/${encodeURIComponent(problem.code)}`} target="_blank" rel="noreferrer"><code>{problem.code}</code></a></p>}
    </div>
  );
}

export function Problem({ problem, retry }: { problem: ApiProblem; retry?: () => void | Promise<void> }) {
  return (
    <div class="problem" role="alert">
      <ProblemBox problem={problem.problem} />
      {retry && <Button onPress={retry}>Try again</Button>}
    </div>
  );
}

/** For routes that the server does not have yet. */
export function NotServed({ what }: { what: string }) {
  return <p class="muted">This server does not offer {what}. Update mailonce to see it here.</p>;
}
