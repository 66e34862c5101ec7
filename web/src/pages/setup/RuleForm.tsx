// Creates a rule.
import { useState } from "preact/hooks";
import { post } from "../../api/client";
import { SelectField, TextField } from "../../components/Field";
import { FormDialog, useIntentions } from "../../components/FormDialog";
import { ACTIONS, FIELDS, isBoolean, OPERATORS, type ActionType, type Condition, type Direction, type Rule } from "./rule-words";

interface ConditionDraft {
  field: string;
  operator: Condition["operator"];
  value: string;
}

interface Draft {
  name: string;
  direction: Direction;
  combine: "all" | "any";
  conditions: ConditionDraft[];
  action: ActionType;
  actionValue: string;
  mode: "enforce" | "observe";
  priority: string;
}

const FIRST: ConditionDraft = { field: "recipient.domain", operator: "is", value: "" };
const START: Draft = { name: "", direction: "outbound", combine: "all", conditions: [FIRST], action: "approve", actionValue: "", mode: "observe", priority: "100" };

const conditionOf = ({ field, operator, value }: ConditionDraft): Condition => {
  if (isBoolean(field)) return { field, operator: "is", value: value || "true" };
  return { field, operator, value: operator === "in_list" ? value.split(",").map((part) => part.trim()).filter(Boolean) : value.trim() };
};

const bodyOf = (draft: Draft) => ({
  name: draft.name.trim(), direction: draft.direction, mode: draft.mode, priority: Number(draft.priority),
  match: { operator: draft.combine, conditions: draft.conditions.map(conditionOf) },
  actions: [draft.action === "folder" || draft.action === "label" ? { type: draft.action, value: draft.actionValue.trim() } : { type: draft.action }],
});

function ConditionRow({ draft, direction, number, change, remove }: { draft: ConditionDraft; direction: Direction; number: number; change: (draft: ConditionDraft) => void; remove: () => void }) {
  const truth = isBoolean(draft.field);
  return (
    <div class="setup-condition" role="group" aria-label={`Condition ${number}`}>
      <SelectField label="Field" hideLabel value={draft.field} options={FIELDS[direction]} onChange={(field) => change({ ...draft, field, value: isBoolean(field) ? "true" : "" })} />
      {!truth && <SelectField label="Comparison" hideLabel value={draft.operator} options={OPERATORS} onChange={(operator) => change({ ...draft, operator: operator as Condition["operator"] })} />}
      {truth
        ? <SelectField label="Value" hideLabel value={draft.value} options={[["true", "yes"], ["false", "no"]]} onChange={(value) => change({ ...draft, value })} />
        : <TextField label="Value" hideLabel required value={draft.value} placeholder={draft.operator === "in_list" ? "a.example, b.example" : "customer.example"} onInput={(value) => change({ ...draft, value })} />}
      <button type="button" class="button quiet small" aria-label={`Remove condition ${number}`} onClick={remove}>×</button>
    </div>
  );
}

function Conditions({ draft, set }: { draft: Draft; set: (change: Partial<Draft>) => void }) {
  const { conditions } = draft;
  return (
    <fieldset class="choices">
      <legend>Conditions</legend>
      {conditions.length > 1 && <SelectField label="Combine" value={draft.combine} options={[["all", "All must hold"], ["any", "One must hold"]]} onChange={(combine) => set({ combine: combine as Draft["combine"] })} />}
      {conditions.map((condition, index) => (
        <ConditionRow key={index} number={index + 1} draft={condition} direction={draft.direction}
          change={(next) => set({ conditions: conditions.map((other, at) => (at === index ? next : other)) })}
          remove={() => set({ conditions: conditions.filter((_, at) => at !== index) })} />
      ))}
      <div><button type="button" class="button small" onClick={() => set({ conditions: [...conditions, FIRST] })}>Add condition</button></div>
    </fieldset>
  );
}

export function RuleForm({ close, done }: { close: () => void; done: () => void }) {
  const [draft, setDraft] = useState(START);
  const keyOf = useIntentions();
  const set = (change: Partial<Draft>) => setDraft({ ...draft, ...change });
  const turn = (direction: string) => {
    const next = direction as Direction;
    set({ direction: next, action: ACTIONS[next][0]?.[0] ?? "block", conditions: draft.conditions.filter(({ field }) => FIELDS[next].some(([name]) => name === field)) });
  };
  const submit = async () => {
    const body = bodyOf(draft);
    await post<Rule>("/v1/rules", body, { key: keyOf(body) });
    done();
  };
  return (
    <FormDialog title="Add a rule" action="Add rule" onClose={close} submit={submit}>
      <TextField label="Name" required value={draft.name} onInput={(name) => set({ name })} placeholder="offers to customers" />
      <SelectField label="For" value={draft.direction} onChange={turn} options={[["outbound", "Email that goes out"], ["inbound", "Mail that comes in"]]} />
      <Conditions draft={draft} set={set} />
      <SelectField label="Then" value={draft.action} onChange={(action) => set({ action: action as ActionType })} options={ACTIONS[draft.direction]} />
      {(draft.action === "folder" || draft.action === "label") && <TextField label={draft.action === "folder" ? "Folder" : "Label"} required value={draft.actionValue} onInput={(actionValue) => set({ actionValue })} />}
      <SelectField label="Mode" value={draft.mode} onChange={(mode) => set({ mode: mode as Draft["mode"] })} hint="Observe first: policy traces then say what the rule would have done." options={[["observe", "Observe: record, do nothing"], ["enforce", "Enforce"]]} />
      <TextField label="Priority" type="number" required value={draft.priority} onInput={(priority) => set({ priority })} hint="Smaller numbers are checked first." />
    </FormDialog>
  );
}
