// The tool that answers "why was my retry refused?": it takes a request and a key, and shows the differences.
import { useState } from "preact/hooks";
import { asProblem, type ApiProblem, type ProblemDocument } from "../../api/problem";
import { Button } from "../../components/Button";
import { Diff } from "../../components/Diff";
import { TextField } from "../../components/Field";
import { Problem, ProblemBox } from "../../components/Problem";
import { announce } from "../../components/Toast";
import { may } from "../../session/session";
import { compare, parseRequest, type Comparison, type FieldRow } from "./comparison";

function Verdict({ comparison: { simulation, original, rows } }: { comparison: Comparison }) {
  const differing = rows.filter(({ differs }) => differs);
  const link = original && <a href={`/emails/${original.id}`}>{original.subject || "the first email"}</a>;
  const problem = simulation.problem as ProblemDocument | null | undefined;
  if (simulation.would === "replay") {
    return differing.length === 0
      ? <p class="notice">The request is the same email. The call would be answered with {link}, and nothing would be sent.</p>
      : <p class="notice wait">The call would be answered with {link}: the first email counts, although {differing.length === 1 ? "a field differs" : `${differing.length} fields differ`}.</p>;
  }
  if (problem?.code === "key_mismatch") return <p class="notice bad">The call would be refused with <code>422 key_mismatch</code>. The key belongs to {link}, which differs in {differing.length === 1 ? "one field" : `${differing.length} fields`}.</p>;
  if (problem) return <div class="problem"><ProblemBox problem={problem} /></div>;
  return <p class="notice">The key is free. The request would be {simulation.would === "hold" ? "accepted and held for a person" : "accepted as a new email"}.</p>;
}

function DifferentField({ row }: { row: FieldRow }) {
  return (
    <section class="stack keys-field">
      <h3>{row.field.replaceAll("_", " ")} <span class="chip bad">differs</span></h3>
      {row.first || row.request
        ? <Diff before={row.first} after={row.request} label={`First email and request: ${row.field}`} />
        : <p class="muted">The server reports a difference in what it keeps only as a hash.</p>}
    </section>
  );
}

function Result({ comparison }: { comparison: Comparison }) {
  const differing = comparison.rows.filter(({ differs }) => differs);
  const same = comparison.rows.filter(({ differs }) => !differs);
  return (
    <div class="stack" aria-label="Result" role="group">
      <Verdict comparison={comparison} />
      {differing.length > 0 && <p class="muted small-text">− is the first email, + is this request.</p>}
      {differing.map((row) => <DifferentField row={row} key={row.field} />)}
      {same.length > 0 && <p><span class="chip good">same</span> {same.map(({ field }) => field.replaceAll("_", " ")).join(", ")}</p>}
    </div>
  );
}

export interface CompareProps {
  /** The key that the page is about; without it the form asks for one. */
  fixedKey?: string;
  start: Record<string, unknown>;
}

export function Compare({ fixedKey, start }: CompareProps) {
  const [key, setKey] = useState(fixedKey ?? "");
  const [text, setText] = useState(JSON.stringify(start, null, 2));
  const [state, setState] = useState<{ comparison?: Comparison; problem?: ApiProblem; error?: string }>({});
  const run = async () => {
    const request = parseRequest(text);
    if (typeof request === "string") return setState({ error: request });
    try {
      const comparison = await compare(key.trim(), request);
      setState({ comparison });
      announce(`${comparison.rows.filter(({ differs }) => differs).length} fields differ`);
    } catch (error) {
      setState({ problem: asProblem(error) });
    }
    return undefined;
  };
  if (!may("send")) return <p class="muted">Comparing needs the scope <code>send</code>, because the server treats the request as a send that it does not carry out.</p>;
  return (
    <div class="keys-compare">
      <div class="stack">
        {fixedKey === undefined && <TextField label="Idempotency key" value={key} onInput={setKey} placeholder="order-4821" hint="Leave it empty for a request with an intent." />}
        <div class="keys-body"><TextField label="Body of the request" rows={12} value={text} onInput={setText} error={state.error} hint="The key is looked up and stays as it is. Nothing is sent or counted." /></div>
        <Button kind="primary" onPress={run}>Compare</Button>
      </div>
      {state.problem && <Problem problem={state.problem} />}
      {state.comparison && <Result comparison={state.comparison} />}
    </div>
  );
}
