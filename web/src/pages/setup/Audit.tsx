// The audit log, newest first.
import { useEffect, useState } from "preact/hooks";
import { useLoad } from "../../api/load";
import { Button } from "../../components/Button";
import { Code } from "../../components/Code";
import { Empty, Loading } from "../../components/Empty";
import { SelectField, TextField } from "../../components/Field";
import { List } from "../../components/List";
import { Problem } from "../../components/Problem";
import { StateChip } from "../../components/StateChip";
import { Time } from "../../components/Time";
import { visible } from "../../components/visible";
import { search, setSearch } from "../../router";
import { names, stopName, wantName } from "../live/names";
import { readOlder, type AuditEntry, type AuditFilter, type OlderEntries } from "./audit-pages";
import { SetupPage } from "./SetupPage";

const FAMILIES = ["api_key", "person", "session", "rule", "budget", "stop", "escalation", "email", "endpoint", "domain", "settings", "inbox", "team", "notification_target", "key", "claim", "connection", "approval_link", "sign_in_link", "thread", "transport", "template", "erasure", "clock", "outbox", "ledger"];

const nameOf = (entry: AuditEntry, id: string): string => String((entry.names as Record<string, unknown>)[id] ?? id);
const actorName = (entry: AuditEntry): string => {
  const { kind, id } = entry.actor;
  const name = nameOf(entry, `${kind}/${id}`);
  return name === `${kind}/${id}` ? nameOf(entry, id) : name;
};

const idOf = (about: string) => about.slice(about.indexOf("/") + 1);

/** The name that the log keeps; else that of the object, if it still exists. */
function aboutName(entry: AuditEntry): string {
  const known = nameOf(entry, entry.about);
  if (known !== entry.about) return known;
  const { scope } = (entry.after ?? {}) as { scope?: unknown };
  if (entry.action.startsWith("stop.") && typeof scope === "string") return stopName(scope);
  return names.value.get(idOf(entry.about)) ?? entry.about;
}

/** The objects to load names of: `about` is such as `escalation/ID`, and the scope of a stop such as `inbox/ID`. */
function wantNames(entry: AuditEntry): void {
  const { scope } = (entry.after ?? {}) as { scope?: unknown };
  for (const object of [entry.about, typeof scope === "string" ? scope : ""]) wantName(object.split("/", 1)[0] ?? "", idOf(object));
}

function EntryRow({ entry }: { entry: AuditEntry }) {
  useEffect(() => wantNames(entry), [entry.seq]);
  return (
    <details class="setup-entry">
      <summary data-row="">
        <span class="muted">{entry.seq}</span>
        <span><strong>{entry.action}</strong> <span>{visible(aboutName(entry))}</span> {entry.fault && <StateChip state="does not match its hash" tone="bad" />}</span>
        <span class="muted">{actorName(entry)}</span>
        <span class="muted setup-when"><Time at={entry.at} /></span>
      </summary>
      <div class="setup-entry-body"><Code text={JSON.stringify(entry, null, 2)} label={`the JSON of entry ${entry.seq}`} wrap /></div>
    </details>
  );
}

function Filters({ filter }: { filter: AuditFilter }) {
  const [actor, setActor] = useState(filter.actor);
  const [about, setAbout] = useState(filter.about);
  return (
    <search>
      <form class="setup-filters" onSubmit={(event) => { event.preventDefault(); setSearch({ actor: actor.trim(), about: about.trim() }); }}>
        <SelectField label="Action" value={filter.action} onChange={(action) => setSearch({ action })} options={[["", "Any action"], ...FAMILIES.map((family): [string, string] => [`${family}.*`, `${family.replaceAll("_", " ")}: all`])]} />
        <TextField label="Actor" value={actor} onInput={setActor} placeholder="Id of a person or API key" />
        <TextField label="About" value={about} onInput={setAbout} placeholder="rule/… or an id" />
        <button type="submit" class="button">Filter</button>
      </form>
    </search>
  );
}

function Entries({ first, filter }: { first: OlderEntries; filter: AuditFilter }) {
  const [older, setOlder] = useState<OlderEntries[]>([]);
  const all = [first, ...older];
  const before = all[all.length - 1]?.before ?? null;
  const entries = all.flatMap((page) => page.entries);
  const more = async () => setOlder([...older, await readOlder(filter, before)]);
  return (
    <>
      {entries.length === 0 && before === null && <Empty title="No entry matches"><p>Actions are named like <code>rule.changed</code>.</p></Empty>}
      {entries.length > 0 && <List label="Audit entries" items={entries} keyOf={({ seq }) => String(seq)} render={(entry) => <EntryRow entry={entry} />} />}
      {before !== null && <p class="more"><Button onPress={more}>Show older</Button></p>}
      <p class="muted">Latest entry {first.head.seq}, hash <code>{first.head.hash.slice(0, 16)}…</code>. <code>mailonce audit verify</code> checks the whole chain.</p>
    </>
  );
}

export function Audit() {
  const filter: AuditFilter = { action: search.value.get("action") ?? "", actor: search.value.get("actor") ?? "", about: search.value.get("about") ?? "" };
  const key = JSON.stringify(filter);
  const { data, problem, reload } = useLoad((signal) => readOlder(filter, null, signal), [key]);
  return (
    <SetupPage section="audit" actions={<Button onPress={reload}>Refresh</Button>}>
      <Filters filter={filter} />
      {problem && <Problem problem={problem} retry={reload} />}
      {!data && !problem && <Loading lines={6} />}
      {data && <Entries key={key} first={data} filter={filter} />}
    </SetupPage>
  );
}
