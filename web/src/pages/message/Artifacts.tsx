// Codes and links of a message. Each can be taken once; whoever took it gets it again.
import { useId, useState } from "preact/hooks";
import { post } from "../../api/client";
import type { Schema } from "../../api/types";
import { Button } from "../../components/Button";
import { Code } from "../../components/Code";
import { TextField } from "../../components/Field";
import { SubmitButton, useIntentions, useSubmit } from "../../components/FormDialog";
import { Problem } from "../../components/Problem";
import { Time } from "../../components/Time";
import { announce } from "../../components/Toast";
import { spaced } from "./words";

export type Artifact = Schema["ArtifactBody"];

function Taken({ artifact }: { artifact: Artifact }) {
  if (!artifact.consumed_at) return <span class="chip good">not taken</span>;
  return <><span class="chip plain">taken</span> <span>for <strong>{artifact.consumed_for}</strong> <Time at={artifact.consumed_at} /></span>{artifact.applied_at && <span class="muted">used <Time at={artifact.applied_at} /></span>}</>;
}

function TakeForm({ artifact, taken }: { artifact: Artifact; taken: (artifact: Artifact) => void }) {
  const [who, setWho] = useState("");
  const id = useId();
  const keyOf = useIntentions();
  const { pending, problem, onSubmit } = useSubmit(async () => {
    const body = { for: who.trim() };
    const { artifact: own } = await post<{ artifact: Artifact }>(`/v1/artifacts/${artifact.id}/consume`, body, { key: keyOf(body) });
    taken(own);
    announce(`The ${artifact.type} was taken`);
  });
  return (
    <form class="stack" id={id} onSubmit={(event) => void onSubmit(event)}>
      <div class="message-take">
        <TextField label="For" value={who} onInput={setWho} placeholder="signup-7" hint="The account or run that uses it" />
        <SubmitButton form={id} pending={pending} disabled={!who.trim()}>Take the {artifact.type}</SubmitButton>
      </div>
      {problem && <Problem problem={problem} />}
    </form>
  );
}

function ArtifactCard({ artifact, revealed, change }: { artifact: Artifact; revealed: boolean; change: (artifact: Artifact) => void }) {
  const [own, setOwn] = useState(false);
  const [asking, setAsking] = useState(false);
  const value = (own || revealed) && artifact.value ? artifact.value : null;
  return (
    <li class="message-artifact stack">
      <p class="row"><strong>{artifact.type === "code" ? "Code" : "Link"}</strong><Taken artifact={artifact} /></p>
      {value ? <Code text={value} label={`the ${artifact.type}`} wrap /> : <p class="message-masked"><code>{artifact.masked}</code></p>}
      <p class="muted small-text">Found with {artifact.confidence} % confidence: {artifact.reasons.map(spaced).join(", ")}. {artifact.sender_authenticated ? "" : "The sender is not authenticated."}</p>
      {!own && artifact.consumed_at && !asking && <Button class="small" onPress={() => setAsking(true)}>Take again…</Button>}
      {!own && (asking || !artifact.consumed_at) && <TakeForm artifact={artifact} taken={(taken) => {
        setOwn(true);
        change(taken);
      }} />}
    </li>
  );
}

function Candidates({ candidates }: { candidates: Record<string, unknown>[] }) {
  if (candidates.length === 0) return null;
  return (
    <div>
      <p class="muted">Not certain enough to be given out:</p>
      <ul>{candidates.map((candidate, index) => <li key={index}><code>{String(candidate["masked"] ?? candidate["type"] ?? "candidate")}</code> <span class="muted">{typeof candidate["confidence"] === "number" ? `${candidate["confidence"]} %` : ""}</span></li>)}</ul>
    </div>
  );
}

export interface ArtifactsProps {
  artifacts: Artifact[];
  candidates: Record<string, unknown>[];
  revealed: boolean;
  reveal: (revealed: boolean) => void;
  change: (artifact: Artifact) => void;
}

export function Artifacts({ artifacts, candidates, revealed, reveal, change }: ArtifactsProps) {
  const known = artifacts.some(({ value }) => value);
  if (artifacts.length === 0 && candidates.length === 0) return null;
  return (
    <section class="card stack" aria-labelledby="artifacts">
      <div class="row spread">
        <h2 id="artifacts">Codes and links</h2>
        {known && <Button class="small" pressed={revealed} onPress={() => reveal(!revealed)}>{revealed ? "Hide values" : "Show values"}</Button>}
      </div>
      <ul class="stack">{artifacts.map((artifact) => <ArtifactCard key={artifact.id} artifact={artifact} revealed={revealed} change={change} />)}</ul>
      <Candidates candidates={candidates} />
    </section>
  );
}
