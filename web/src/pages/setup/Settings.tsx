// The settings of the team.
import { useId, useState } from "preact/hooks";
import { get, patch } from "../../api/client";
import { useLoad } from "../../api/load";
import type { Schema } from "../../api/types";
import { Loading } from "../../components/Empty";
import { CheckField, ListField, SelectField, TextField } from "../../components/Field";
import { SubmitButton, useSubmit } from "../../components/FormDialog";
import { Problem } from "../../components/Problem";
import { toast } from "../../components/Toast";
import { may } from "../../session/session";
import { ApprovalEmails } from "./ApprovalEmails";
import { SetupPage } from "./SetupPage";

type SettingsBody = Schema["SettingsBody"];
type Set = (change: Partial<SettingsBody>) => void;

const GUARD: [string, string][] = [["off", "Do nothing"], ["flag", "Send and flag it"], ["hold", "Hold it for a person"]];

function Guards({ draft, set }: { draft: SettingsBody; set: Set }) {
  const { content_guard: guard, compat } = draft;
  return (
    <section class="card stack" aria-labelledby="guards">
      <h2 id="guards">Duplicates without the same key</h2>
      <p class="muted">What happens to an email that looks like one that was just sent to the same people.</p>
      <div class="grid">
        <SelectField label="With an idempotency key" value={guard.keyed ?? "flag"} options={GUARD} onChange={(keyed) => set({ content_guard: { ...guard, keyed: keyed as typeof guard.keyed } })} />
        <SelectField label="Without a key" value={guard.keyless ?? "hold"} options={GUARD} onChange={(keyless) => set({ content_guard: { ...guard, keyless: keyless as typeof guard.keyless } })} />
        <SelectField label="By MCP" value={guard.mcp ?? "hold"} options={GUARD} onChange={(mcp) => set({ content_guard: { ...guard, mcp: mcp as typeof guard.mcp } })} />
      </div>
      <div class="grid">
        <SelectField label="Identical email by a compatible API, without a key" value={compat.keyless} options={[["replay", "Answer with the first email"], ["hold", "Hold it for a person"], ["send", "Send and flag it"]]} onChange={(keyless) => set({ compat: { ...compat, keyless: keyless as typeof compat.keyless } })} />
        <TextField label="Counts as identical within" value={compat.window} hint="1m to 1h" onInput={(window) => set({ compat: { ...compat, window } })} />
      </div>
    </section>
  );
}

function Decisions({ draft, set }: { draft: SettingsBody; set: Set }) {
  const email = draft.escalation_email;
  const setEmail = (from: string, to: string[]) => set({ escalation_email: from.trim() || to.length > 0 ? { from: from.trim(), to } : null });
  return (
    <section class="card stack" aria-labelledby="decisions">
      <h2 id="decisions">Replies and questions</h2>
      <div class="grid">
        <SelectField label="Risky replies" value={draft.reply_to} hint="A reply that would go to another organization, or to a message that failed authentication." options={[["allow", "Allow"], ["flag", "Send and flag"], ["refuse", "Refuse"]]} onChange={(reply) => set({ reply_to: reply as SettingsBody["reply_to"] })} />
        <TextField label="Reject a held email after" value={draft.held_expires_after ?? ""} placeholder="Never" hint="Such as 24h; 1 minute to 30 days." onInput={(after) => set({ held_expires_after: after.trim() || null })} />
      </div>
      <div class="grid">
        <TextField label="Questions by email: from" value={email?.from ?? ""} placeholder="questions@example.com" onInput={(from) => setEmail(from, email?.to ?? [])} />
        <ListField label="Questions by email: to" value={email?.to ?? []} placeholder="ada@example.com, grace@example.com" onChange={(to) => setEmail(email?.from ?? "", to)} />
      </div>
      <ListField label="Tags that get an unsubscribe link" value={draft.unsubscribe.tags} placeholder="newsletter, kind=offer" onChange={(tags) => set({ unsubscribe: { tags } })} />
    </section>
  );
}

function Storage({ draft, set }: { draft: SettingsBody; set: Set }) {
  const { retention } = draft;
  const keep = (name: keyof typeof retention) => (value: string) => set({ retention: { ...retention, [name]: value.trim() || null } });
  return (
    <section class="card stack" aria-labelledby="storage">
      <h2 id="storage">Time and retention</h2>
      <SelectField label="Time zone" value={draft.time_zone} hint="Days and months of budgets begin there. A change begins them anew." options={["UTC", ...Intl.supportedValuesOf("timeZone").filter((zone) => zone !== "UTC")].map((zone) => [zone, zone])} onChange={(zone) => set({ time_zone: zone })} />
      <div class="grid">
        <TextField label="Bodies of sent email" value={retention.bodies ?? ""} placeholder="30d" hint="1h to 30d after the final state." onInput={keep("bodies")} />
        <TextField label="Received mail" value={retention.raw ?? ""} placeholder="For ever" hint="1h to 3650d." onInput={keep("raw")} />
        <TextField label="Events" value={retention.events ?? ""} placeholder="For ever" hint="1d to 3650d, with their webhook notices." onInput={keep("events")} />
        <TextField label="Audit log" value={retention.audit ?? ""} placeholder="For ever" hint="1d to 3650d." onInput={keep("audit")} />
      </div>
      <CheckField label="Every audit entry is also an event" checked={draft.audit_events} onChange={(events) => set({ audit_events: events })} />
    </section>
  );
}

/** Only what changed is sent, so that two people do not undo each other's settings. */
const changesOf = (before: SettingsBody, after: SettingsBody) =>
  Object.fromEntries(Object.entries(after).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(before[name as keyof SettingsBody])));

function SettingsForm({ settings, saved }: { settings: SettingsBody; saved: (settings: SettingsBody) => void }) {
  const id = useId();
  const [draft, setDraft] = useState(settings);
  const set: Set = (change) => setDraft({ ...draft, ...change });
  const changes = changesOf(settings, draft);
  const changed = Object.keys(changes).length > 0;
  const { pending, problem, onSubmit } = useSubmit(async () => {
    const next = await patch<SettingsBody>("/v1/settings", changes);
    saved(next);
    setDraft(next);
    toast("Saved");
  });
  return (
    <>
      <form id={id} class="stack" onSubmit={(event) => void onSubmit(event)}>
        <Guards draft={draft} set={set} />
        <Decisions draft={draft} set={set} />
        {draft.approval_emails !== undefined && <ApprovalEmails value={draft.approval_emails} change={(emails) => set({ approval_emails: emails })} />}
        <Storage draft={draft} set={set} />
      </form>
      {problem && <Problem problem={problem} />}
      <div class="setup-save">
        <SubmitButton form={id} pending={pending} disabled={!changed || !may("admin")}>Save changes</SubmitButton>
        {changed && <button type="button" class="button" onClick={() => setDraft(settings)}>Discard</button>}
        {!may("admin") && <span class="muted">Changes need the scope admin.</span>}
      </div>
    </>
  );
}

export function Settings() {
  const { data, problem, reload, set } = useLoad((signal) => get<SettingsBody>("/v1/settings", {}, { signal }), []);
  return (
    <SetupPage section="settings">
      {problem && <Problem problem={problem} retry={reload} />}
      {!data && !problem && <Loading lines={6} />}
      {data && <SettingsForm settings={data} saved={set} />}
    </SetupPage>
  );
}
