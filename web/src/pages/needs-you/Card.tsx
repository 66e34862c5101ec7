// One question in the queue, with everything a decision needs. It loads its content when it comes near the window.
import { useEffect, useRef, useState } from "preact/hooks";
import { get } from "../../api/client";
import { useLoad } from "../../api/load";
import type { Escalation } from "../../api/types";
import { Button } from "../../components/Button";
import { Loading } from "../../components/Empty";
import { Problem } from "../../components/Problem";
import { StateChip } from "../../components/StateChip";
import { Time } from "../../components/Time";
import { visible } from "../../components/visible";
import { may } from "../../session/session";
import { Addresses, Bodies, Warnings } from "./HeldEmail";
import { groupOf, REASONS, titleOf } from "./reasons";

export interface CardProps {
  escalation: Escalation;
  selected: boolean;
  select: (loaded: Escalation, selected: boolean) => void;
  approve: (loaded: Escalation) => Promise<void>;
  reject: (loaded: Escalation) => void;
  /** Tells the queue what is shown, for its shortcuts. */
  onLoaded: (loaded: Escalation) => void;
}

const NEAR = "800px";

function useNear(element: { current: HTMLElement | null }): boolean {
  const [near, setNear] = useState(false);
  useEffect(() => {
    if (!element.current) return undefined;
    const observer = new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && setNear(true), { rootMargin: NEAR });
    observer.observe(element.current);
    return () => observer.disconnect();
  }, []);
  return near;
}

export function Card(props: CardProps) {
  const element = useRef<HTMLElement>(null);
  const near = useNear(element);
  const { escalation } = props;
  const words = REASONS[escalation.reason];
  return (
    <article class="needs-you-card" ref={element} aria-labelledby={`card-${escalation.id}`}>
      <p class="row small-text">
        <StateChip state={words.label} tone={groupOf(escalation) === "asked" ? "busy" : "wait"} />
        <Time at={escalation.created_at} />
        <span class="muted">{escalation.about.rule ? `Rule “${escalation.about.rule.name}” wants a person to look first.` : words.why}</span>
      </p>
      {near ? <Content {...props} /> : <Loading />}
    </article>
  );
}

function Content(props: CardProps) {
  const { id, rev } = props.escalation;
  const { data, problem, reload } = useLoad((signal) => get<Escalation>(`/v1/escalations/${id}`, {}, { signal }), [id, rev]);
  useEffect(() => {
    if (data) props.onLoaded(data);
  }, [data]);
  if (problem) return <Problem problem={problem} retry={reload} />;
  if (!data) return <Loading />;
  return groupOf(data) === "held" && data.email ? <Held {...props} loaded={data} /> : <Other loaded={data} />;
}

function Title({ loaded }: { loaded: Escalation }) {
  return <h2 id={`card-${loaded.id}`}><a href={`/needs-you/${loaded.id}`} data-row="" data-id={loaded.id}>{visible(titleOf(loaded)) || "(no subject)"}</a></h2>;
}

function Held({ loaded, selected, select, approve, reject }: CardProps & { loaded: Escalation }) {
  const email = loaded.email!;
  const allowed = may("approve", "admin");
  return (
    <>
      <Title loaded={loaded} />
      <Warnings warnings={email.warnings} />
      <Addresses email={email} />
      <Bodies email={email} />
      <div class="row">
        <Button kind="primary" disabled={!allowed} onPress={() => approve(loaded)}>Approve and send</Button>
        {allowed && loaded.allowed_decisions.includes("edit") && <a class="button" href={`/needs-you/${loaded.id}?edit=1`}>Edit</a>}
        <Button kind="danger" disabled={!allowed} onPress={() => reject(loaded)}>Reject…</Button>
        <label class="needs-you-select">
          <input type="checkbox" checked={selected} disabled={!allowed} onChange={(event) => select(loaded, event.currentTarget.checked)} /> Select
        </label>
      </div>
    </>
  );
}

/** Unknown outcomes and questions are decided on their own page, which shows the evidence. */
function Other({ loaded }: { loaded: Escalation }) {
  const { email, about } = loaded;
  return (
    <>
      <Title loaded={loaded} />
      {email && <p>{email.from} → {email.to.join(", ")}</p>}
      {about.entity && <p class="muted">About <code>{about.entity}</code></p>}
      <div class="row"><a class="button primary" href={`/needs-you/${loaded.id}`}>{groupOf(loaded) === "unknown" ? "See the evidence and settle" : "Answer"}</a></div>
    </>
  );
}
