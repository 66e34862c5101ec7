// One question on its own page. After a decision the next question follows.
import { get } from "../../api/client";
import { useRefreshOn } from "../../api/events";
import { useLoad } from "../../api/load";
import type { Escalation } from "../../api/types";
import { Loading } from "../../components/Empty";
import { useShortcuts } from "../../components/keys";
import { PageHead } from "../../components/PageHead";
import { Problem } from "../../components/Problem";
import { StateChip } from "../../components/StateChip";
import { Time } from "../../components/Time";
import { visible } from "../../components/visible";
import type { PageProps } from "..";
import { navigate } from "../../router";
import { may } from "../../session/session";
import { Approve } from "./Approve";
import { Question } from "./Question";
import { nextPath, queue } from "./queue";
import { groupOf, REASONS } from "./reasons";
import { SettleClaim } from "./SettleClaim";
import { SettleEmail } from "./SettleEmail";

const DECISIONS: Record<string, string> = {
  release: "approved", edit: "edited and sent", reject: "rejected", sent: "marked as sent", resend: "sent again", abandon: "abandoned", done: "marked as done", retry: "freed for a retry",
};

function Decided({ escalation }: { escalation: Escalation }) {
  const { decision, decided_by: by, about } = escalation;
  const how = decision ? DECISIONS[decision.as] : escalation.state === "moot" ? "closed without a decision, because it no longer matters" : "closed because it expired";
  return (
    <div class="notice stack">
      <p><strong>Decided: {how}</strong>{by && ` by ${by}`}{decision && <> <Time at={decision.at} full /></>}</p>
      {decision?.reason && <p>“{decision.reason}”</p>}
      <p class="row">
        <a class="button primary" href={nextPath(escalation.id)}>Next question</a>
        {about.email && <a class="button" href={`/emails/${about.email}`}>The email</a>}
      </p>
    </div>
  );
}

const title = (escalation: Escalation) =>
  visible((groupOf(escalation) === "held" ? escalation.email?.subject : escalation.about.question ?? escalation.email?.subject) || REASONS[escalation.reason].label);

function Body({ escalation, reload }: { escalation: Escalation; reload: () => Promise<void> }) {
  const done = () => navigate(nextPath(escalation.id));
  if (escalation.state !== "open") return <Decided escalation={escalation} />;
  if (groupOf(escalation) === "held" && escalation.email) return <Approve escalation={escalation} done={done} />;
  if (escalation.reason === "unknown" && escalation.about.email) return <SettleEmail escalation={escalation} email={escalation.about.email} done={done} />;
  if (escalation.reason === "claim_unknown" && escalation.about.claim) return <SettleClaim escalation={escalation} claim={escalation.about.claim} done={done} />;
  return <Question escalation={escalation} done={done} reload={reload} />;
}

function Position({ id }: { id: string }) {
  const index = queue.value.findIndex((escalation) => escalation.id === id);
  return index < 0 ? null : <span class="muted">{index + 1} of {queue.value.length} in the queue</span>;
}

export function DecidePage({ params }: PageProps) {
  const id = params["id"] ?? "";
  const { data, problem, reload } = useLoad((signal) => get<Escalation>(`/v1/escalations/${encodeURIComponent(id)}`, {}, { signal }), [id]);
  useRefreshOn("escalation.*", () => void reload(), { matches: (event) => event.about.id === id });
  useShortcuts("Question", [
    { keys: "n", does: "next question", run: () => navigate(nextPath(id)) },
    { keys: "u", does: "back to the queue", run: () => navigate("/needs-you") },
  ]);
  return (
    <>
      <PageHead title={data ? title(data) : "Question"} back={{ href: "/needs-you", label: "Needs you" }} />
      {problem && <Problem problem={problem} retry={reload} />}
      {!data && !problem && <Loading lines={6} />}
      {data && (
        <p class="row small-text">
          <StateChip state={REASONS[data.reason].label} tone="wait" />
          <Time at={data.created_at} full />
          <span class="muted">{data.about.rule ? `Rule “${data.about.rule.name}” wants a person to look first.` : REASONS[data.reason].why}</span>
          <Position id={id} />
        </p>
      )}
      {data && !may("approve", "admin") && <p class="notice">You can look. To decide, you need the role approver or admin.</p>}
      {data && <Body escalation={data} reload={reload} key={data.id} />}
    </>
  );
}
