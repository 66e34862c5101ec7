// One email in the list, and one hit of a search.
import { useEffect, useState } from "preact/hooks";
import { get } from "../../api/client";
import { useRefreshOn } from "../../api/events";
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

/** What was loaded, so that rows that come back into the window are not empty first. */
const cache = new Map<string, { email: Email; at: number }>();
/** A row that comes back later than this is loaded again, because it missed the events in between. */
const CURRENT_MS = 5000;

/** A hit has only a snippet; the rest is loaded for the rows that are visible, and again when the email changes. */
export function HitRow({ hit }: { hit: Schema["SearchHitBody"] }) {
  const [email, setEmail] = useState(cache.get(hit.id)?.email ?? null);
  const load = (signal?: AbortSignal) => get<Email>(`/v1/emails/${hit.id}`, {}, { signal }).then((loaded) => {
    cache.set(hit.id, { email: loaded, at: Date.now() });
    setEmail(loaded);
  }, () => undefined);
  useEffect(() => {
    if (Date.now() - (cache.get(hit.id)?.at ?? 0) < CURRENT_MS) return undefined;
    const controller = new AbortController();
    void load(controller.signal);
    return () => controller.abort();
  }, [hit.id]);
  useRefreshOn("email.*", () => void load(), { matches: (event) => event.about.id === hit.id });
  if (email) return <EmailRow email={email} snippet={hit.snippet} />;
  return (
    <div class="emails-row">
      <a href={`/emails/${hit.id}`} data-row="">{hit.snippet || "Email"}</a>
      <span class="emails-time"><Time at={hit.at} /></span>
    </div>
  );
}
