// One email in the list, and one hit of a search.
import { useEffect, useState } from "preact/hooks";
import { get } from "../../api/client";
import type { Email, Schema } from "../../api/types";
import { StateChip } from "../../components/StateChip";
import { Time } from "../../components/Time";
import { subjectOf } from "../../components/visible";

const people = (email: Email) => email.to.slice(0, 2).join(", ") + (email.to.length > 2 ? ` and ${email.to.length - 2} more` : "");

export function EmailRow({ email, snippet }: { email: Email; snippet?: string }) {
  return (
    <div class="emails-row">
      <a href={`/emails/${email.id}`} data-row="">{subjectOf(email)}</a>
      <span class="emails-to">{snippet && snippet !== email.subject ? snippet : people(email)}</span>
      <span class="emails-duplicates">{email.suppressed > 0 && <span class="chip accent" title="Duplicate calls that sent nothing">{email.suppressed.toLocaleString("en")}× stopped</span>}</span>
      <span class="emails-state"><StateChip state={email.state} /></span>
      <span class="emails-time"><Time at={email.created_at} /></span>
    </div>
  );
}

const cache = new Map<string, Email>();

/** A hit has only a snippet; the rest is loaded for the rows that are visible. */
export function HitRow({ hit }: { hit: Schema["SearchHitBody"] }) {
  const [email, setEmail] = useState(cache.get(hit.id) ?? null);
  useEffect(() => {
    if (email) return undefined;
    const controller = new AbortController();
    get<Email>(`/v1/emails/${hit.id}`, {}, { signal: controller.signal }).then((loaded) => {
      cache.set(hit.id, loaded);
      setEmail(loaded);
    }, () => undefined);
    return () => controller.abort();
  }, [hit.id]);
  if (email) return <EmailRow email={email} snippet={hit.snippet} />;
  return (
    <div class="emails-row">
      <a href={`/emails/${hit.id}`} data-row="">{hit.snippet || "Email"}</a>
      <span class="emails-time"><Time at={hit.at} /></span>
    </div>
  );
}
