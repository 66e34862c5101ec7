// Creates an API key.
import { useState } from "preact/hooks";
import { post } from "../../api/client";
import type { Schema, Scope } from "../../api/types";
import { CheckField, TextField } from "../../components/Field";
import { FormDialog, useIntentions } from "../../components/FormDialog";
import { may } from "../../session/session";

export type CreatedKey = Schema["CreatedApiKeyBody"];

const SCOPES: [Scope, string][] = [
  ["send", "send, cancel, resend, claims"],
  ["read", "emails, events, messages, threads"],
  ["reply", "reply, forward, lease a thread, ask a person"],
  ["secrets", "codes and links unmasked, raw mails"],
  ["approve", "decide what waits for a person: not for agents"],
  ["admin", "manage the team"],
  ["operator", "manage the installation"],
];

interface Draft {
  name: string;
  scopes: Scope[];
  inboxes: string[];
  senders: string;
  ips: string;
  expires: string;
  rate: string;
}

const lines = (text: string) => text.split(/[\s,]+/).filter(Boolean);

const bodyOf = (draft: Draft) => ({
  name: draft.name.trim(),
  scopes: draft.scopes,
  inboxes: draft.inboxes.length > 0 ? draft.inboxes : null,
  allowed_senders: lines(draft.senders).length > 0 ? lines(draft.senders) : null,
  allow_ips: lines(draft.ips).length > 0 ? lines(draft.ips) : null,
  expires_at: draft.expires ? new Date(draft.expires).toISOString() : null,
  rate_per_s: draft.rate ? Number(draft.rate) : null,
});

const toggled = <T,>(list: T[], item: T, on: boolean) => (on ? [...list, item] : list.filter((other) => other !== item));

function Limits({ draft, set }: { draft: Draft; set: (change: Partial<Draft>) => void }) {
  return (
    <details>
      <summary>Further limits</summary>
      <div class="stack setup-limits">
        <TextField label="Allowed senders" value={draft.senders} onInput={(senders) => set({ senders })} placeholder="@example.com, bot@example.org" hint="Any when empty." />
        <TextField label="Allowed IP addresses" value={draft.ips} onInput={(ips) => set({ ips })} placeholder="10.0.0.0/8" hint="Any when empty." />
        <TextField label="Expires" type="datetime-local" value={draft.expires} onInput={(expires) => set({ expires })} hint="Never when empty." />
        <TextField label="Calls per second, at most" type="number" value={draft.rate} onInput={(rate) => set({ rate })} placeholder="No limit" />
      </div>
    </details>
  );
}

export function ApiKeyForm({ inboxes, close, done }: { inboxes: [id: string, address: string][]; close: () => void; done: (key: CreatedKey) => void }) {
  const [draft, setDraft] = useState<Draft>({ name: "", scopes: ["send", "read"], inboxes: [], senders: "", ips: "", expires: "", rate: "" });
  const keyOf = useIntentions();
  const set = (change: Partial<Draft>) => setDraft({ ...draft, ...change });
  const submit = async () => {
    const body = bodyOf(draft);
    done(await post<CreatedKey>("/v1/api-keys", body, { key: keyOf(body) }));
  };
  return (
    <FormDialog title="Create an API key" action="Create" onClose={close} submit={submit} disabled={draft.scopes.length === 0}>
      <TextField label="Name" required value={draft.name} onInput={(name) => set({ name })} placeholder="support agent" />
      <fieldset class="choices">
        <legend>Scopes</legend>
        {SCOPES.filter(([scope]) => may(scope)).map(([scope, allows]) => (
          <CheckField key={scope} label={`${scope}: ${allows}`} checked={draft.scopes.includes(scope)} onChange={(on) => set({ scopes: toggled(draft.scopes, scope, on) })} />
        ))}
      </fieldset>
      {inboxes.length > 0 && (
        <fieldset class="choices">
          <legend>Inboxes (all when none is chosen)</legend>
          {inboxes.map(([id, address]) => <CheckField key={id} label={address} checked={draft.inboxes.includes(id)} onChange={(on) => set({ inboxes: toggled(draft.inboxes, id, on) })} />)}
        </fieldset>
      )}
      <Limits draft={draft} set={set} />
    </FormDialog>
  );
}
