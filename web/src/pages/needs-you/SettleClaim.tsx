// Settles a claim whose holder was lost after it began.
import { get } from "../../api/client";
import { useLoad } from "../../api/load";
import type { Claim, Escalation } from "../../api/types";
import { Loading } from "../../components/Empty";
import { Facts } from "../../components/PageHead";
import { Problem } from "../../components/Problem";
import { Time } from "../../components/Time";
import { toast } from "../../components/Toast";
import { Id } from "../../components/Code";
import { Choices, CLAIM_CHOICES } from "./Choices";
import { decide } from "./queue";

function Known({ claim }: { claim: Claim }) {
  return (
    <section class="card stack">
      <h2>What is known</h2>
      <Facts facts={[
        ["Key", <Id value={claim.key} label="the key" />],
        ["Intent", claim.intent ? <code>{JSON.stringify(claim.intent)}</code> : null],
        ["Lost holder", claim.label ?? <span class="muted">without a name</span>],
        ["Lease ended", claim.lease_expires_at ? <Time at={claim.lease_expires_at} /> : null],
        ["Frees itself", claim.retry_at ? <Time at={claim.retry_at} /> : null],
        ["May repeat", claim.may_repeat ? "an earlier holder may have done it already" : null],
        ["Payload", claim.payload === undefined || claim.payload === null ? null : <code>{JSON.stringify(claim.payload)}</code>],
      ]} />
      <h3>Look-ups</h3>
      {claim.evidence.length === 0 && <p class="muted">None so far. Look in the other system for the key above.</p>}
      <ul>{claim.evidence.map((report, index) => <li key={index}><code>{JSON.stringify(report)}</code></li>)}</ul>
    </section>
  );
}

export function SettleClaim({ escalation, claim: id, done }: { escalation: Escalation; claim: string; done: () => void }) {
  const { data, problem, reload } = useLoad((signal) => get<Claim>(`/v1/claims/${id}`, {}, { signal }), [id]);
  const settle = async (as: "done" | "retry" | "abandon") => {
    await decide(escalation, { as });
    toast({ done: "Marked as done", retry: "Freed for the next caller", abandon: "Given up" }[as]);
    done();
  };
  if (problem) return <Problem problem={problem} retry={reload} />;
  if (!data) return <Loading />;
  return (
    <>
      <Known claim={data} />
      <Choices choices={CLAIM_CHOICES} settle={settle} withReason={false} />
    </>
  );
}
