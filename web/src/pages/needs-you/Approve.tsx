// Approves, edits or rejects a held email.
import { useState } from "preact/hooks";
import type { Escalation, Schema } from "../../api/types";
import { Button } from "../../components/Button";
import { Diff, DiffView, type DiffLine } from "../../components/Diff";
import { TextField } from "../../components/Field";
import { useShortcuts } from "../../components/keys";
import { StateChip } from "../../components/StateChip";
import { Time } from "../../components/Time";
import { reportProblem, toast } from "../../components/Toast";
import { visible } from "../../components/visible";
import { search, setSearch } from "../../router";
import { may } from "../../session/session";
import { Addresses, Bodies, Warnings } from "./HeldEmail";
import { decide } from "./queue";
import { RejectDialog } from "./RejectDialog";

interface ApproveProps {
  escalation: Escalation;
  done: () => void;
}

/** The server's diff: `- ` is only in the earlier email, `+ ` only in this one. */
const similarLines = (lines: string[]): DiffLine[] =>
  lines.map((line) => ({ kind: line.startsWith("- ") ? "removed" : line.startsWith("+ ") ? "added" : "same", text: line.slice(2) }));

function Similar({ similar }: { similar: Schema["SimilarEmailBody"] }) {
  return (
    <section class="card stack">
      <h2>The email it looks like</h2>
      <p class="row"><a href={`/emails/${similar.email.id}`}>{similar.email.subject || "(no subject)"}</a> <StateChip state={similar.email.state} /> <Time at={similar.email.created_at} /></p>
      <DiffView lines={similarLines(similar.diff)} label="Differences from the earlier email to this one" />
    </section>
  );
}

const Source = ({ summary, text }: { summary: string; text: string | null | undefined }) => text == null ? null : (
  <details>
    <summary>{summary}</summary>
    <pre class="plain-text full">{visible(text)}</pre>
  </details>
);

function useDecision({ escalation, done }: ApproveProps) {
  const approve = async () => {
    await decide(escalation, { as: "release" });
    toast(`Approved: ${escalation.email?.subject ?? ""}`);
    done();
  };
  const reject = async (reason: string) => {
    await decide(escalation, { as: "reject", reason: reason || null });
    toast(`Rejected: ${escalation.email?.subject ?? ""}`);
    done();
  };
  const edit = async (changes: Schema["EditBody"]) => {
    await decide(escalation, { as: "edit", edit: changes });
    toast(`Edited and sent: ${changes.subject ?? escalation.email?.subject ?? ""}`);
    done();
  };
  return { approve, reject, edit };
}

export function Approve(props: ApproveProps) {
  const { escalation } = props;
  const email = escalation.email!;
  const allowed = may("approve", "admin");
  const editing = search.value.get("edit") === "1";
  const [rejecting, setRejecting] = useState(false);
  const { approve, reject, edit } = useDecision(props);
  useShortcuts("Approve", [
    { keys: "a", does: "approve and send", run: () => void (allowed && !editing && approve().catch(reportProblem)) },
    { keys: "e", does: "edit", run: () => setSearch({ edit: "1" }) },
    { keys: "r", does: "reject", run: () => allowed && setRejecting(true) },
  ]);
  if (editing) return <Edit email={email} save={edit} back={() => setSearch({ edit: null })} />;
  return (
    <>
      <Warnings warnings={email.warnings} />
      <section class="card stack" aria-label="What will be sent">
        <Addresses email={email} />
        <hr />
        <Bodies email={email} frame />
        <Source summary="All of it as plain text, with the address of every link" text={email.approval_text} />
        <Source summary="Source of the HTML" text={email.html} />
      </section>
      {escalation.similar_email && <Similar similar={escalation.similar_email} />}
      <div class="needs-you-decision">
        <Button kind="primary" disabled={!allowed} onPress={approve}>Approve and send</Button>
        <Button disabled={!allowed || !escalation.allowed_decisions.includes("edit")} onPress={() => setSearch({ edit: "1" })}>Edit first</Button>
        <Button kind="danger" disabled={!allowed} onPress={() => setRejecting(true)}>Reject…</Button>
      </div>
      {rejecting && <RejectDialog what={`“${email.subject}”`} reject={reject} close={() => setRejecting(false)} />}
    </>
  );
}

/** An email without a text part is edited as the text of its HTML. */
const textOf = (email: Schema["HeldEmailBody"]) => email.text ?? email.html_as_text ?? "";

/** Only changed parts are sent. Changing one body replaces both, so the page says when the HTML is dropped. */
const changesOf = (email: Schema["HeldEmailBody"], subject: string, text: string): Schema["EditBody"] => ({
  ...(subject !== email.subject ? { subject } : {}),
  ...(text !== textOf(email) ? { text } : {}),
});

function Edit({ email, save, back }: { email: Schema["HeldEmailBody"]; save: (changes: Schema["EditBody"]) => Promise<void>; back: () => void }) {
  const [subject, setSubject] = useState(email.subject);
  const [text, setText] = useState(textOf(email));
  const changes = changesOf(email, subject, text);
  const changed = Object.keys(changes).length > 0;
  const before = `Subject: ${email.subject}\n\n${textOf(email)}`;
  return (
    <div class="needs-you-edit">
      <section class="card stack">
        <h2>Edit</h2>
        <TextField label="Subject" value={subject} onInput={setSubject} />
        <TextField label="Text" value={text} onInput={setText} rows={14} />
        {email.html != null && changes.text !== undefined && <p class="notice wait">The new text replaces the HTML part, so that both cannot say different things.</p>}
        <p class="muted">The held email is cancelled, and this version is sent to the same recipients.</p>
        <div class="row">
          <Button kind="primary" disabled={!changed || !may("approve", "admin")} onPress={() => save(changes)}>Send the edited email</Button>
          <Button onPress={back}>Back without changes</Button>
        </div>
      </section>
      <section class="card stack">
        <h2>What changes</h2>
        {changed ? <Diff before={before} after={`Subject: ${subject}\n\n${text}`} label="Changes" /> : <p class="muted">Nothing yet.</p>}
      </section>
    </div>
  );
}
