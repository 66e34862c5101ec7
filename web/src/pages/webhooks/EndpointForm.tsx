// Creates or changes an endpoint.
import { useState } from "preact/hooks";
import { patch, post } from "../../api/client";
import type { Schema } from "../../api/types";
import { CheckField, TextField } from "../../components/Field";
import { FormDialog, useIntentions } from "../../components/FormDialog";
import { FAMILIES, otherTypes } from "./event-types";

export type Endpoint = Schema["EndpointBody"];

interface Draft {
  url: string;
  description: string;
  events: string[];
  rate: string;
  includeText: boolean;
}

const draftOf = (endpoint: Endpoint | null): Draft => ({
  url: endpoint?.url ?? "",
  description: endpoint?.description ?? "",
  events: endpoint?.events ?? ["*"],
  rate: endpoint?.rate_per_s ? String(endpoint.rate_per_s) : "",
  includeText: endpoint?.include_text ?? false,
});

const bodyOf = (draft: Draft) => ({
  url: draft.url.trim(),
  description: draft.description.trim(),
  events: draft.events,
  rate_per_s: draft.rate.trim() ? Number(draft.rate) : null,
  include_text: draft.includeText,
});

function EventChoice({ events, change }: { events: string[]; change: (events: string[]) => void }) {
  const all = events.includes("*");
  const toggle = (type: string, on: boolean) => change(on ? [...events.filter((event) => event !== "*"), type] : events.filter((event) => event !== type));
  return (
    <fieldset class="choices">
      <legend>Events</legend>
      <CheckField label="All events" checked={all} onChange={(on) => change(on ? ["*"] : ["email.*"])} />
      {!all && FAMILIES.map(([type, label]) => (
        <CheckField key={type} label={`${label} (${type})`} checked={events.includes(type)} onChange={(on) => toggle(type, on)} />
      ))}
      {!all && otherTypes(events).map((type) => <CheckField key={type} label={type} checked onChange={(on) => toggle(type, on)} />)}
    </fieldset>
  );
}

/** `done` gets the endpoint; a new one has its secret. */
export function EndpointForm({ endpoint, close, done }: { endpoint: Endpoint | null; close: () => void; done: (endpoint: Endpoint) => void }) {
  const [draft, setDraft] = useState(() => draftOf(endpoint));
  const keyOf = useIntentions();
  const set = (change: Partial<Draft>) => setDraft({ ...draft, ...change });
  const submit = async () => {
    const body = bodyOf(draft);
    done(endpoint
      ? await patch<Endpoint>(`/v1/endpoints/${endpoint.id}`, { ...body, rev: endpoint.rev })
      : await post<Endpoint>("/v1/endpoints", body, { key: keyOf(body) }));
  };
  return (
    <FormDialog title={endpoint ? "Change the endpoint" : "Add an endpoint"} action={endpoint ? "Save" : "Add endpoint"} onClose={close} submit={submit} disabled={draft.events.length === 0}>
      <TextField label="URL" type="url" required value={draft.url} onInput={(url) => set({ url })} placeholder="https://app.example.com/hooks" hint="https, and a public address unless the configuration allows others." />
      <TextField label="Description" value={draft.description} onInput={(description) => set({ description })} placeholder="Order service" />
      <EventChoice events={draft.events} change={(events) => set({ events })} />
      <TextField label="Requests per second, at most" type="number" value={draft.rate} onInput={(rate) => set({ rate })} placeholder="No limit" />
      <CheckField label="Include the text of received messages" hint="Codes stay masked." checked={draft.includeText} onChange={(includeText) => set({ includeText })} />
    </FormDialog>
  );
}
