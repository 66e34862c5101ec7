// What is known about an unknown email: the attempts with the next hop's words, and all evidence.
import { useId } from "preact/hooks";
import type { EmailDetail, Schema } from "../../api/types";
import { Facts } from "../../components/PageHead";
import { StateChip } from "../../components/StateChip";
import { Time } from "../../components/Time";
import { Id } from "../../components/Code";

type Phase = NonNullable<Schema["AttemptBody"]["phase"]>;

/** The steps of an attempt, in order. Providers with an HTTP API take the last one at once. */
const PHASES: Record<Phase, string> = {
  connect: "connecting", tls: "starting TLS", greet: "greeting", login: "logging in", mail: "naming the sender", rcpt: "naming the recipient", data: "sending the content", final: "waiting for the final answer",
};
/** Not every next hop wants these. */
const OPTIONAL: Phase[] = ["tls", "login"];
const SOURCES: Record<Schema["EvidenceBody"]["source"], string> = {
  late_reply: "a late answer", look_up: "a look-up", provider_event: "a provider event", bounce: "a bounce", person: "a person", policy: "the email's policy", window: "a repeat with the same key", crash: "a crash",
};

export const phaseWords = (phase: Phase | null | undefined): string => (phase ? PHASES[phase] ?? phase : "");

/** How far an attempt got: the step that it reached stands out, and those before it are ticked. */
function Steps({ reached }: { reached: Phase }) {
  const steps = (Object.keys(PHASES) as Phase[]).filter((phase) => phase === reached || !OPTIONAL.includes(phase));
  const position = steps.indexOf(reached);
  return (
    <ol class="needs-you-steps">
      {steps.map((phase, index) => (
        <li key={phase} class={index > position ? "muted" : undefined} aria-current={phase === reached ? "step" : undefined}>
          {index < position && "✓ "}{phaseWords(phase)}
        </li>
      ))}
    </ol>
  );
}

function Attempt({ attempt, transport }: { attempt: Schema["AttemptBody"]; transport: string }) {
  const said = attempt.reply || "nothing";
  return (
    <li class="needs-you-attempt">
      <p class="row"><strong>Attempt {attempt.number}</strong> <StateChip state={attempt.outcome ?? "running"} /> <Time at={attempt.at} full /> <span class="muted">by {attempt.transport ?? transport}</span></p>
      <Facts facts={[
        ["Reached", attempt.phase ? <Steps reached={attempt.phase} /> : null],
        ["Next hop said", <q>{attempt.code ? `${attempt.code} ${said}` : said}</q>],
        ["Its id", attempt.remote_id ? <code>{attempt.remote_id}</code> : null],
      ]} />
    </li>
  );
}

interface EvidenceProps {
  email: EmailDetail;
  /** Only the parts in this state. */
  only?: Schema["HandoffBody"]["state"];
  /** Without a card and a landmark of its own. */
  plain?: boolean;
}

export function Evidence({ email, only, plain = false }: EvidenceProps) {
  const title = useId();
  const handoffs = email.handoffs.filter(({ state }) => !only || state === only);
  return (
    <section class={plain ? "stack" : "card stack"} aria-labelledby={plain ? undefined : title}>
      <h2 id={title}>What is known</h2>
      {handoffs.map((handoff) => (
        <div class="stack" key={handoff.number}>
          <h3>To {handoff.recipients.join(", ")} <StateChip state={handoff.state} /></h3>
          {handoff.reason && <p class="muted">{handoff.reason}</p>}
          <ul class="stack">{handoff.attempts.map((attempt) => <Attempt key={attempt.number} attempt={attempt} transport={handoff.transport} />)}</ul>
        </div>
      ))}
      <h3>Evidence</h3>
      {email.evidence.length === 0 && <p class="muted">None so far. Look in the log of the next hop for the Message-ID.</p>}
      <ul class="stack">
        {email.evidence.map((one, index) => (
          <li key={index}><Time at={one.at} full /> {SOURCES[one.source]} says <strong>{one.says.replaceAll("_", " ")}</strong> <span class="muted">{one.detail}</span></li>
        ))}
      </ul>
      <Facts facts={[["Message-ID", <Id value={email.message_id} label="the Message-ID" />], ["Key", email.key ? <code>{email.key}</code> : null]]} />
    </section>
  );
}
