// A question that is answered with yes or no: asked by an agent, or for the record.
import { useState } from "preact/hooks";
import type { Escalation } from "../../api/types";
import { Button } from "../../components/Button";
import { TextField } from "../../components/Field";
import { Facts } from "../../components/PageHead";
import { Time } from "../../components/Time";
import { toast } from "../../components/Toast";
import { visible } from "../../components/visible";
import { may } from "../../session/session";
import { decide } from "./queue";

interface QuestionProps {
  escalation: Escalation;
  done: () => void;
  reload: () => Promise<void>;
}

const LABELS: Partial<Record<Escalation["reason"], [yes: string, no: string]>> = {
  asked: ["Yes", "No"],
  orphaned: ["Seen, keep waiting", ""],
};

/** The heading of the page shows a question of one short line. */
const isLong = (question: string) => question.includes("\n") || question.length > 160;

export function Question({ escalation, done }: QuestionProps) {
  const [reason, setReason] = useState("");
  const { about, allowed_decisions: allowed } = escalation;
  const [yes, no] = LABELS[escalation.reason] ?? ["Seen", "Dismiss"];
  const answer = async (as: "release" | "reject") => {
    await decide(escalation, { as, reason: reason.trim() || null });
    toast("Answered");
    done();
  };
  return (
    <section class="card stack">
      {about.question && isLong(about.question) && <pre class="plain-text full">{visible(about.question)}</pre>}
      <Facts facts={[
        ["About", about.entity ? <code>{about.entity}</code> : null],
        ["Message", about.message ? <a href={`/messages/${about.message}`}>{about.message}</a> : null],
        ["Thread", about.thread ? <a href={`/threads/${about.thread}`}>{about.thread}</a> : null],
        ["Email", about.email ? <a href={`/emails/${about.email}`}>{about.email}</a> : null],
        ["Transport", about.transport ?? null],
        ["Missing since", about.missing_since ? <Time at={about.missing_since} /> : null],
      ]} />
      <TextField label="Your words" hint={escalation.reason === "asked" ? "The agent reads them with the answer." : "They stay with the decision."} value={reason} onInput={setReason} rows={3} />
      <div class="row">
        <Button kind="primary" disabled={!may("approve", "admin")} onPress={() => answer("release")}>{yes}</Button>
        {no && allowed.includes("reject") && <Button disabled={!may("approve", "admin")} onPress={() => answer("reject")}>{no}</Button>}
      </div>
    </section>
  );
}
