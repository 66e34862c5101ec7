// Rules of the team, in the order in which they are checked.
import { useState } from "preact/hooks";
import { del, patch } from "../../api/client";
import { usePages } from "../../api/load";
import { ApiCommand } from "../../components/ApiCommand";
import { Button } from "../../components/Button";
import { confirm } from "../../components/Dialog";
import { Empty, Loading } from "../../components/Empty";
import { List } from "../../components/List";
import { Problem } from "../../components/Problem";
import { StateChip } from "../../components/StateChip";
import { More } from "../../components/Table";
import { toast } from "../../components/Toast";
import { may } from "../../session/session";
import { actionWords, conditionWords, type Rule } from "./rule-words";
import { RuleForm } from "./RuleForm";
import { SetupPage } from "./SetupPage";
import { Simulate } from "./Simulate";

interface RowProps {
  rule: Rule;
  change: (rule: Rule) => void;
  removed: () => void;
}

function RuleActions({ rule, change, removed }: RowProps) {
  const allowed = may("admin");
  const save = async (values: Partial<Pick<Rule, "enabled" | "mode">>) => change(await patch<Rule>(`/v1/rules/${rule.id}`, { rev: rule.rev, ...values }));
  const remove = async () => {
    const yes = await confirm({ title: `Delete ${rule.name}?`, body: <p>It no longer applies to new mail.</p>, action: "Delete rule", danger: true });
    if (!yes) return;
    await del(`/v1/rules/${rule.id}`);
    removed();
  };
  return (
    <div class="row">
      <Button class="small" disabled={!allowed} label={`${rule.mode === "observe" ? "Enforce" : "Observe only"}: ${rule.name}`} onPress={() => save({ mode: rule.mode === "observe" ? "enforce" : "observe" })}>{rule.mode === "observe" ? "Enforce" : "Observe only"}</Button>
      <Button class="small" disabled={!allowed} label={`${rule.enabled ? "Disable" : "Enable"} ${rule.name}`} onPress={() => save({ enabled: !rule.enabled })}>{rule.enabled ? "Disable" : "Enable"}</Button>
      <Button class="small" kind="danger" disabled={!allowed} label={`Delete ${rule.name}`} onPress={remove}>Delete</Button>
    </div>
  );
}

function RuleRow(props: RowProps) {
  const { rule } = props;
  const conditions = rule.match.conditions.map(conditionWords);
  return (
    <div class="setup-row" data-row="" tabIndex={-1}>
      <div>
        <p class="row"><strong>{rule.name}</strong><span class="chip">{rule.direction}</span><StateChip state={rule.enabled ? rule.mode : "disabled"} tone={rule.enabled ? (rule.mode === "enforce" ? "good" : "busy") : "plain"} /></p>
        <p>{conditions.length > 0 ? `If ${conditions.join(rule.match.operator === "any" ? " or " : " and ")}` : "Always"}: {rule.actions.map(actionWords).join(", ")}.</p>
        <p class="muted small-text">Priority {rule.priority}</p>
      </div>
      <RuleActions {...props} />
    </div>
  );
}

const inOrder = (rules: Rule[]): Rule[] => [...rules].sort((a, b) => a.priority - b.priority);

export function Rules() {
  const { items, problem, loading, done, more, reload, update } = usePages<Rule>("/v1/rules", { limit: 100 });
  const [adding, setAdding] = useState(false);
  const change = (next: Rule) => update((all) => all.map((rule) => (rule.id === next.id ? next : rule)));
  const finish = (words: string) => {
    setAdding(false);
    toast(words);
    void reload();
  };
  return (
    <SetupPage section="rules" actions={<Button kind="primary" disabled={!may("admin")} onPress={() => setAdding(true)}>Add rule…</Button>}>
      {problem && <Problem problem={problem} retry={reload} />}
      {items.length === 0 && loading && !done && <Loading />}
      {items.length === 0 && done && (
        <Empty title="No rule yet">
          <p>A rule blocks or sorts received mail, and refuses an email or holds it for approval before it goes out. Let a new rule observe first, then enforce it.</p>
          <ApiCommand path="/v1/rules" body={{ name: "offers", direction: "outbound", mode: "observe", match: { conditions: [{ field: "subject", operator: "contains", value: "offer" }] }, actions: [{ type: "approve" }] }} />
        </Empty>
      )}
      {items.length > 0 && <List label="Rules" items={inOrder(items)} keyOf={({ id }) => id} render={(rule) => <RuleRow rule={rule} change={change} removed={() => finish("Deleted")} />} />}
      <More done={done || items.length === 0} loading={loading} more={more} />
      <Simulate />
      {adding && <RuleForm close={() => setAdding(false)} done={() => finish("The rule was added")} />}
    </SetupPage>
  );
}
