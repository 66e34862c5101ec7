// Budgets with what is used in the current period.
import { useState } from "preact/hooks";
import { del } from "../../api/client";
import { useRefreshOn } from "../../api/events";
import { usePages } from "../../api/load";
import { ApiCommand } from "../../components/ApiCommand";
import { Button } from "../../components/Button";
import { confirm } from "../../components/Dialog";
import { Empty, Loading } from "../../components/Empty";
import { Meter } from "../../components/Meter";
import { Problem } from "../../components/Problem";
import { StateChip } from "../../components/StateChip";
import { More, Table } from "../../components/Table";
import { Time } from "../../components/Time";
import { toast } from "../../components/Toast";
import { may } from "../../session/session";
import { EditBudgetForm, NewBudgetForm } from "./BudgetForm";
import { scopeName, type Budget, type Names } from "./scopes";

const MEASURES = { mails: "emails", recipients: "recipients", new_recipients: "new recipients" };
const AT_LIMIT = { refuse: "then refused", hold: "then held", flag: "then flagged" };

function Usage({ budget }: { budget: Budget }) {
  if (!budget.enabled) return <StateChip state="disabled" tone="plain" />;
  if (budget.used === null || budget.used === undefined) return <span class="muted">{budget.limit.toLocaleString("en")} each</span>;
  return <Meter label={`Used of ${budget.name}`} used={budget.used} limit={budget.limit} />;
}

function NoBudgets() {
  return (
    <Empty title="No budget yet">
      <p>An agent in a loop can send a thousand mails before anybody looks. A budget limits what may be sent in a minute, an hour, a day or a month.</p>
      <ApiCommand path="/v1/budgets" body={{ name: "all agents", scope: { team: true }, measure: "recipients", per: "day", limit: 500, at_limit: "hold" }} />
    </Empty>
  );
}

async function remove(budget: Budget): Promise<boolean> {
  const yes = await confirm({ title: `Delete ${budget.name}?`, body: <p>Its limit no longer applies, and email that it holds is released.</p>, action: "Delete budget", danger: true });
  if (yes) await del(`/v1/budgets/${budget.id}`);
  return yes;
}

function BudgetTable({ budgets, names, edit, removed }: { budgets: Budget[]; names: Names; edit: (budget: Budget) => void; removed: () => void }) {
  return (
    <Table label="Budgets" rows={budgets} keyOf={({ id }) => id} columns={[
      { head: "Budget", cell: (budget) => <><strong>{budget.name}</strong><span class="sub">{scopeName(budget.scope, names)}</span></> },
      { head: "Used", cell: (budget) => <><Usage budget={budget} /><span class="sub">{MEASURES[budget.measure]} per {budget.per}, {AT_LIMIT[budget.at_limit]}</span></> },
      { head: "Resets", wide: true, cell: ({ resets_at: at, enabled }) => (enabled ? <Time at={at} /> : "") },
      { head: "Actions", cell: (budget) => (
        <div class="row stops-row-actions">
          <Button class="small" disabled={!may("admin")} label={`Edit ${budget.name}`} onPress={() => edit(budget)}>Edit…</Button>
          <Button class="small" kind="danger" disabled={!may("admin")} label={`Delete ${budget.name}`} onPress={async () => void ((await remove(budget)) && removed())}>Delete</Button>
        </div>
      ) },
    ]} />
  );
}

export function Budgets({ names }: { names: Names }) {
  const { items, problem, loading, done, more, reload } = usePages<Budget>("/v1/budgets", { limit: 100 });
  const [adding, setAdding] = useState(false);
  const [editing, setEditing] = useState<Budget | null>(null);
  useRefreshOn("email.*", () => void reload());
  const finish = (words: string) => {
    setAdding(false);
    setEditing(null);
    toast(words);
    void reload();
  };
  return (
    <section class="stack" aria-labelledby="budgets">
      <div class="row spread">
        <h2 id="budgets">Budgets</h2>
        <Button disabled={!may("admin")} onPress={() => setAdding(true)}>Add budget…</Button>
      </div>
      {problem && <Problem problem={problem} retry={reload} />}
      {items.length === 0 && loading && !done && <Loading />}
      {items.length === 0 && done && <NoBudgets />}
      {items.length > 0 && <div class="card flush"><BudgetTable budgets={items} names={names} edit={setEditing} removed={() => finish("Deleted")} /><More done={done} loading={loading} more={more} /></div>}
      {adding && <NewBudgetForm names={names} close={() => setAdding(false)} done={() => finish("The budget counts from now on")} />}
      {editing && <EditBudgetForm budget={editing} close={() => setEditing(null)} done={() => finish("Saved")} />}
    </section>
  );
}
