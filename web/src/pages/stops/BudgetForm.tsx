// Creates or changes a budget.
import { useState } from "preact/hooks";
import { patch, post } from "../../api/client";
import { CheckField, SelectField, TextField } from "../../components/Field";
import { FormDialog, useIntentions } from "../../components/FormDialog";
import type { Budget, Names } from "./scopes";

type ScopeKind = "team" | "inbox" | "api_key" | "recipient" | "recipient_domain";

const SCOPES: [ScopeKind, string][] = [["team", "The whole team"], ["inbox", "One inbox"], ["api_key", "One API key"], ["recipient", "Recipients"], ["recipient_domain", "Recipient domains"]];
const MEASURES: [string, string][] = [["mails", "Emails"], ["recipients", "Recipients"], ["new_recipients", "Recipients that the team never mailed"]];
const PERIODS: [string, string][] = [["minute", "Minute"], ["hour", "Hour"], ["day", "Day"], ["month", "Month"]];
const AT_LIMIT: [string, string][] = [["refuse", "Refuse it with 429"], ["hold", "Hold it until there is room"], ["flag", "Send and flag it"]];

function ScopeField({ kind, value, names, change }: { kind: ScopeKind; value: string; names: Names; change: (value: string) => void }) {
  if (kind === "team") return null;
  if (kind === "inbox") return <SelectField label="Inbox" value={value} onChange={change} options={[["", "Choose…"], ...names.inboxes]} />;
  if (kind === "api_key") return <SelectField label="API key" value={value} onChange={change} options={[["", "Choose…"], ...names.apiKeys]} />;
  return <TextField label={kind === "recipient" ? "Address" : "Domain"} value={value} onInput={change} placeholder="any" hint="any: each one has the limit for itself." />;
}

export function NewBudgetForm({ names, close, done }: { names: Names; close: () => void; done: () => void }) {
  const [draft, setDraft] = useState({ name: "", kind: "team" as ScopeKind, value: "", measure: "mails", per: "day", limit: "500", atLimit: "hold" });
  const keyOf = useIntentions();
  const set = (change: Partial<typeof draft>) => setDraft({ ...draft, ...change });
  const submit = async () => {
    const { kind, value } = draft;
    const target = value.trim() || "any";
    const body = {
      name: draft.name.trim(), scope: kind === "team" ? { team: true } : { [kind]: target },
      measure: draft.measure, per: draft.per, limit: Number(draft.limit), at_limit: draft.atLimit,
    };
    await post<Budget>("/v1/budgets", body, { key: keyOf(body) });
    done();
  };
  const incomplete = (draft.kind === "inbox" || draft.kind === "api_key") && !draft.value;
  return (
    <FormDialog title="Add a budget" action="Add budget" onClose={close} submit={submit} disabled={incomplete}>
      <TextField label="Name" required value={draft.name} onInput={(name) => set({ name })} placeholder="agents" />
      <div class="grid">
        <SelectField label="Limits" value={draft.kind} onChange={(kind) => set({ kind: kind as ScopeKind, value: "" })} options={SCOPES} />
        <ScopeField kind={draft.kind} value={draft.value} names={names} change={(value) => set({ value })} />
      </div>
      <SelectField label="What counts" value={draft.measure} onChange={(measure) => set({ measure })} options={MEASURES} />
      <div class="stops-limit">
        <TextField label="Limit" type="number" required value={draft.limit} onInput={(limit) => set({ limit })} />
        <SelectField label="Per" value={draft.per} onChange={(per) => set({ per })} options={PERIODS} />
      </div>
      <SelectField label="An email without room" value={draft.atLimit} onChange={(atLimit) => set({ atLimit })} options={AT_LIMIT} />
    </FormDialog>
  );
}

export function EditBudgetForm({ budget, close, done }: { budget: Budget; close: () => void; done: () => void }) {
  const [limit, setLimit] = useState(String(budget.limit));
  const [atLimit, setAtLimit] = useState<string>(budget.at_limit);
  const [enabled, setEnabled] = useState(budget.enabled);
  const submit = async () => {
    await patch<Budget>(`/v1/budgets/${budget.id}`, { rev: budget.rev, limit: Number(limit), at_limit: atLimit, enabled });
    done();
  };
  return (
    <FormDialog title={`Change ${budget.name}`} action="Save" onClose={close} submit={submit}>
      <p class="muted">What is used stays used.</p>
      <TextField label={`Limit per ${budget.per}`} type="number" required value={limit} onInput={setLimit} />
      <SelectField label="An email without room" value={atLimit} onChange={setAtLimit} options={AT_LIMIT} />
      <CheckField label="Enabled" hint="A disabled budget neither counts nor refuses." checked={enabled} onChange={setEnabled} />
    </FormDialog>
  );
}
