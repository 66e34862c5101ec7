// Approves, edits or rejects a held email.
import { useEffect, useState } from "preact/hooks";
import type { Escalation, Schema } from "../../api/types";
import { Button } from "../../components/Button";
import { DiffView, type DiffLine } from "../../components/Diff";
import { useShortcuts } from "../../components/keys";
import { StateChip } from "../../components/StateChip";
import { Time } from "../../components/Time";
import { reportProblem, toast } from "../../components/Toast";
import { subjectOf, visible } from "../../components/visible";
import { search, setSearch } from "../../router";
import { may } from "../../session/session";
import { Edit } from "./Edit";
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
      <p class="row"><a href={`/emails/${similar.email.id}`}>{subjectOf(similar.email)}</a> <StateChip state={similar.email.state} /> <Time at={similar.email.created_at} /></p>
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

/** An email can be approved after it was on the page for this long, so that a second press for the one before it releases nothing. */
const LOOK_MS = 1000;

/** True when what `name` stands for has been shown for a moment. */
function useShown(name: string): boolean {
  const [shown, setShown] = useState("");
  useEffect(() => {
    const timer = window.setTimeout(() => setShown(name), LOOK_MS);
    return () => window.clearTimeout(timer);
  }, [name]);
  return shown === name;
}

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
  const editable = allowed && escalation.allowed_decisions.includes("edit");
  const editing = editable && search.value.get("edit") === "1";
  const shown = useShown(`${escalation.id} ${escalation.rev} ${editing}`);
  const [rejecting, setRejecting] = useState(false);
  const { approve, reject, edit } = useDecision(props);
  useShortcuts("Approve", [
    { keys: "a", does: "approve and send", run: () => void (allowed && shown && !editing && approve().catch(reportProblem)) },
    { keys: "e", does: "edit", run: () => void (editable && setSearch({ edit: "1" })) },
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
        <Button kind="primary" disabled={!allowed || !shown} onPress={approve}>Approve and send</Button>
        <Button disabled={!editable} onPress={() => setSearch({ edit: "1" })}>Edit first</Button>
        <Button kind="danger" disabled={!allowed} onPress={() => setRejecting(true)}>Reject…</Button>
      </div>
      {rejecting && <RejectDialog what={`“${email.subject}”`} reject={reject} close={() => setRejecting(false)} />}
    </>
  );
}
