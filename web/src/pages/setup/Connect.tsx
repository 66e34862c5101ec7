// Snippets with the address of this server and an inbox of the team filled in.
import { useState } from "preact/hooks";
import { useEvents } from "../../api/events";
import { useSender } from "../../api/sender";
import { Code } from "../../components/Code";
import { NewKeyButton } from "../../components/NewKeyButton";
import { Tabs } from "../../components/Tabs";
import { Time } from "../../components/Time";
import { SetupPage } from "./SetupPage";
import { SNIPPETS, type Snippet } from "./snippets";

/** Shows when a call arrives, so that nobody has to look for the first email. */
function LastCall() {
  const [last, setLast] = useState<{ at: string; id: string; duplicate: boolean } | null>(null);
  useEvents("email.accepted,email.held,email.duplicate", (event) => setLast({ at: event.at, id: event.about.id, duplicate: event.type === "email.duplicate" }));
  if (!last) return <p class="muted row" role="status"><span class="spinner" aria-hidden="true" /> Waiting for a call…</p>;
  return <p role="status"><strong>{last.duplicate ? "A duplicate was stopped" : "An email was accepted"}</strong> <Time at={last.at} />: <a href={`/emails/${last.id}`}>open it</a></p>;
}

function SnippetPanel({ snippet, from, apiKey }: { snippet: Snippet; from: string; apiKey: string }) {
  return (
    <div class="stack">
      <p class="muted">{snippet.note}</p>
      <Code text={snippet.text(window.location.origin, from, apiKey || "mo_…")} label={`the ${snippet.label} snippet`} />
    </div>
  );
}

export function Connect() {
  const from = useSender()?.address ?? "…";
  const [key, setKey] = useState("");
  return (
    <SetupPage section="connect">
      <section class="card stack" aria-label="Snippets">
        <Tabs label="Connect with" tabs={SNIPPETS.map((snippet) => ({ name: snippet.name, label: snippet.label, content: () => <SnippetPanel snippet={snippet} from={from} apiKey={key} /> }))} />
        {key ? <p class="hint">The key is shown only now, in the snippets that hold one. It may send, read and reply, nothing else.</p> : <NewKeyButton name="connect" scopes={["send", "read", "reply"]} onKey={setKey} />}
        <LastCall />
      </section>
      <div class="grid">
        <section class="card stack"><h2>Credentials</h2><p>Each program gets an <a href="/setup/api-keys">API key</a> of its own. Models should have the scopes <code>send</code>, <code>read</code> and <code>reply</code>, so that they never approve their own requests.</p></section>
        <section class="card stack"><h2>Events back</h2><p>Your application receives what happened as signed <a href="/webhooks">webhooks</a>, or reads <code>GET /v1/events/stream</code>.</p></section>
        <section class="card stack"><h2>Reference</h2><p>The <a href="/docs" target="_blank" rel="noreferrer">API reference</a> tries calls in the browser; <a href="/openapi.json" target="_blank" rel="noreferrer">openapi.json</a> describes all of them.</p></section>
      </div>
    </SetupPage>
  );
}
