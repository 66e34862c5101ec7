// The queue of everything that waits for a person.
import { useEffect, useRef, useState } from "preact/hooks";
import { useRefreshOn } from "../../api/events";
import { useLoad } from "../../api/load";
import { needsYou } from "../../api/needs-you";
import type { Decision, Escalation } from "../../api/types";
import { Button } from "../../components/Button";
import { Empty, Loading } from "../../components/Empty";
import { List } from "../../components/List";
import { useShortcuts } from "../../components/keys";
import { PageHead } from "../../components/PageHead";
import { Problem } from "../../components/Problem";
import { reportProblem, toast } from "../../components/Toast";
import { Code } from "../../components/Code";
import { navigate, search, setSearch } from "../../router";
import { may } from "../../session/session";
import { Card } from "./Card";
import { decide, loadQueue, queue } from "./queue";
import { GROUP_LABELS, GROUPS, reasonsOf, type Group } from "./reasons";
import { RejectDialog } from "./RejectDialog";

const currentGroup = (): Group | null => GROUPS.find((group) => group === search.value.get("group")) ?? null;

function Filters() {
  const counts = needsYou.value ?? {};
  const count = (group: Group) => reasonsOf(group).reduce((sum, reason) => sum + (counts[reason] ?? 0), 0);
  const all = GROUPS.reduce((sum, group) => sum + count(group), 0);
  const selected = currentGroup();
  const filter = (group: Group | null, label: string, total: number) => (
    <button type="button" class="button small" aria-pressed={selected === group} onClick={() => setSearch({ group })}>{label}{total > 0 && <span class="count">{total}</span>}</button>
  );
  return (
    <div class="row" role="group" aria-label="Show">
      {filter(null, "All", all)}
      {GROUPS.map((group) => filter(group, GROUP_LABELS[group], count(group)))}
    </div>
  );
}

/** The queue loads the first questions of each reason. */
function More({ shown }: { shown: number }) {
  const counts = needsYou.value ?? {};
  const group = currentGroup();
  const total = (group ? [group] : GROUPS).flatMap(reasonsOf).reduce((sum, reason) => sum + (counts[reason] ?? 0), 0);
  return total > shown ? <p class="muted">{shown} of {total} are shown. The others follow as you decide.</p> : null;
}

function NothingWaits() {
  return (
    <Empty title="Nothing waits for you">
      <p>When mailonce must not guess, it asks here: emails with an unknown outcome, emails that a guard or rule holds, and questions of agents.</p>
      <p>To see one, let an agent ask:</p>
      <Code label="the command" text={"curl -s $MAILONCE_URL/v1/escalations -H \"Authorization: Bearer $MAILONCE_API_KEY\" \\\n  -H 'Content-Type: application/json' -d '{\"question\": \"May I refund order 4821?\"}'"} />
    </Empty>
  );
}

/** Decides several in turn. Those that fail stay in the queue, with the problem of the first. */
async function decideAll(escalations: Escalation[], act: (escalation: Escalation) => Promise<unknown>, done: string): Promise<void> {
  const results = await Promise.allSettled(escalations.map(act));
  const failed = results.filter((result) => result.status === "rejected");
  const good = results.length - failed.length;
  if (good > 0) toast(good === 1 ? `1 email ${done}` : `${good} emails ${done}`);
  if (failed[0]) reportProblem(failed[0].reason);
}

interface SelectionBarProps {
  selected: Escalation[];
  approve: () => Promise<void>;
  reject: () => void;
  clear: () => void;
}

const SelectionBar = ({ selected, approve, reject, clear }: SelectionBarProps) => selected.length === 0 ? null : (
  <div class="needs-you-selection" role="region" aria-label="Selected emails">
    <span>{selected.length} selected</span>
    <Button kind="primary" onPress={approve}>Approve {selected.length}</Button>
    <Button kind="danger" onPress={reject}>Reject {selected.length}…</Button>
    <Button kind="quiet" onPress={clear}>Clear</Button>
  </div>
);

/** The question whose card has the focus. */
const focusedId = () => document.activeElement?.closest("article")?.querySelector<HTMLElement>("[data-id]")?.dataset["id"];

const isOpen = (escalation: Escalation) => queue.value.some(({ id, rev }) => id === escalation.id && rev === escalation.rev);

/** What is selected, what is being rejected, and the decisions about several emails. */
function useDecisions() {
  const [selected, setSelected] = useState<Escalation[]>([]);
  const [rejecting, setRejecting] = useState<Escalation[]>([]);
  const isSelected = (id: string) => selected.some((escalation) => escalation.id === id);
  const select = (escalation: Escalation, on: boolean) => setSelected([...selected.filter(({ id }) => id !== escalation.id), ...(on ? [escalation] : [])]);
  // What somebody else decided meanwhile leaves the queue and the selection.
  useEffect(() => setSelected((old) => (old.every(isOpen) ? old : old.filter(isOpen))), [queue.value]);
  const finish = (done: Escalation[]) => setSelected((old) => old.filter(({ id }) => !done.some((other) => other.id === id)));
  const approve = async (escalations: Escalation[]) => {
    await decideAll(escalations, (escalation) => decide(escalation, { as: "release" }), "approved");
    finish(escalations);
  };
  const reject = async (reason: string) => {
    await decideAll(rejecting, (escalation) => decide(escalation, { as: "reject", reason: reason || null }), "rejected");
    finish(rejecting);
    setRejecting([]);
  };
  return { selected, setSelected, isSelected, select, approve, rejecting, setRejecting, reject };
}

type Decisions = ReturnType<typeof useDecisions>;

/** Shortcuts for the card in focus. They act only on what is loaded, and so visible. */
function useCardShortcuts(loaded: Map<string, Escalation>, { approve, setRejecting, select, isSelected }: Decisions): void {
  const onHeld = (act: (escalation: Escalation) => void, as: Decision["as"] = "release") => () => {
    const escalation = loaded.get(focusedId() ?? "");
    if (escalation?.email && escalation.allowed_decisions.includes(as) && may("approve", "admin")) act(escalation);
  };
  useShortcuts("Needs you", [
    { keys: "a", does: "approve the email in focus", run: onHeld((escalation) => void approve([escalation])) },
    { keys: "r", does: "reject the email in focus", run: onHeld((escalation) => setRejecting([escalation])) },
    { keys: "e", does: "edit the email in focus", run: onHeld((escalation) => navigate(`/needs-you/${escalation.id}?edit=1`), "edit") },
    { keys: "x", does: "select the email in focus", run: onHeld((escalation) => select(escalation, !isSelected(escalation.id))) },
  ]);
}

function Queue({ decisions }: { decisions: Decisions }) {
  const loaded = useRef(new Map<string, Escalation>());
  const { isSelected, select, approve, setRejecting } = decisions;
  useCardShortcuts(loaded.current, decisions);
  return (
    <>
      <List label="Questions" items={queue.value} keyOf={({ id }) => id} render={(escalation) => (
        <Card escalation={escalation} selected={isSelected(escalation.id)} select={select} approve={(one) => approve([one])}
          reject={(one) => setRejecting([one])} onLoaded={(one) => loaded.current.set(one.id, one)} />
      )} />
      <More shown={queue.value.length} />
    </>
  );
}

export function NeedsYou() {
  const group = currentGroup();
  const { data, problem, reload } = useLoad((signal) => loadQueue(group, signal), [group]);
  const decisions = useDecisions();
  const { selected, setSelected, rejecting, setRejecting, approve, reject } = decisions;
  useRefreshOn("escalation.*", () => void reload());
  return (
    <>
      <PageHead title="Needs you" intro="mailonce asks a person when it must not guess. Each question is decided once." />
      <Filters />
      {!may("approve", "admin") && <p class="notice">You can look. To decide, you need the role approver or admin.</p>}
      {problem && <Problem problem={problem} retry={reload} />}
      {!data && !problem && <Loading lines={6} />}
      {data && (queue.value.length === 0 ? <NothingWaits /> : <Queue decisions={decisions} />)}
      <SelectionBar selected={selected} approve={() => approve(selected)} reject={() => setRejecting(selected)} clear={() => setSelected([])} />
      {rejecting.length > 0 && (
        <RejectDialog what={rejecting.length === 1 ? `“${rejecting[0]?.email?.subject ?? ""}”` : `${rejecting.length} emails`} reject={reject} close={() => setRejecting([])} />
      )}
    </>
  );
}
