// What each check decided about an email, in the order of the checks.
import type { Schema } from "../api/types";
import { StateChip, type Tone } from "./StateChip";
import { Table } from "./Table";

const VERDICTS: Record<string, Tone> = { pass: "good", hold: "wait", refuse: "bad", flag: "wait", observe: "plain" };

/** Rules and budgets have the names that people gave them; the names of other checks are words of the server. */
const nameOf = ({ id, name }: Schema["PolicyStepBody"]): string => (id ? name : name.replaceAll("_", " "));

export function PolicyTrace({ steps }: { steps: Schema["PolicyStepBody"][] }) {
  return (
    <Table label="Policy trace" rows={steps} keyOf={({ name, kind, id }) => `${kind} ${name} ${id ?? ""}`} columns={[
      { head: "Check", cell: (step) => <><strong>{nameOf(step)}</strong>{step.id && <span class="sub">{step.kind}</span>}</> },
      { head: "Verdict", cell: ({ verdict }) => <StateChip state={verdict} tone={VERDICTS[verdict]} /> },
      { head: "Why", cell: ({ why }) => why },
    ]} />
  );
}
