// Conversations: messages and emails that reply to each other.
import { getAll, useLoad, usePages } from "../../api/load";
import { useRefreshPages } from "../../api/refresh";
import type { Schema } from "../../api/types";
import { Button } from "../../components/Button";
import { ArrivalCommand } from "../../components/ExampleCommand";
import { Empty, Loading } from "../../components/Empty";
import { SelectField, TextField } from "../../components/Field";
import { PageHead } from "../../components/PageHead";
import { Problem } from "../../components/Problem";
import { More, Table } from "../../components/Table";
import { Time } from "../../components/Time";
import { useTyped } from "../../components/typed";
import { subjectOf } from "../../components/visible";
import { search, setSearch } from "../../router";
import { isHeld, type Thread } from "./lease";

const PAGE = 50;
const HANDLED: [string, string][] = [["", "All threads"], ["false", "Not handled"], ["true", "Handled"]];

type Inboxes = [id: string, address: string][];

function useInboxes(): Inboxes {
  const { data } = useLoad((signal) => getAll<Schema["InboxBody"]>("/v1/inboxes", signal), []);
  return (data ?? []).map(({ id, address }) => [id, address]);
}

function Filters({ inboxes }: { inboxes: Inboxes }) {
  const [label, setLabel] = useTyped(search.value.get("label") ?? "", (value) => setSearch({ label: value }));
  return (
    <search class="threads-filters">
      <SelectField label="Inbox" value={search.value.get("inbox") ?? ""} onChange={(inbox) => setSearch({ inbox })} options={[["", "All inboxes"], ...inboxes]} />
      <SelectField label="State" value={search.value.get("handled") ?? ""} onChange={(handled) => setSearch({ handled })} options={HANDLED} />
      <TextField label="Label" value={label} onInput={setLabel} placeholder="billing" />
    </search>
  );
}

/** Who works on it, or whether it was handled. */
function Progress({ thread }: { thread: Thread }) {
  if (isHeld(thread)) return <span class="chip busy free-text">{thread.lease?.holder}</span>;
  return thread.handled_at ? <span class="chip good">handled</span> : <span class="chip plain">not handled</span>;
}

function ThreadTable({ threads, inboxes }: { threads: Thread[]; inboxes: Inboxes }) {
  const address = new Map(inboxes);
  return (
    <Table label="Threads" rows={threads} keyOf={({ id }) => id} href={({ id }) => `/threads/${id}`} columns={[
      { head: "Subject", cell: (thread) => <>{subjectOf(thread)} {thread.labels.map((label) => <span class="chip plain free-text threads-mark" key={label}>{label}</span>)}</> },
      { head: "Inbox", wide: true, cell: ({ inbox_id: id }) => <span class="muted">{address.get(id)}</span> },
      { head: "State", cell: (thread) => <Progress thread={thread} /> },
      { head: "Received", number: true, wide: true, cell: ({ message_count: count }) => count },
      { head: "Sent", number: true, wide: true, cell: ({ email_count: count }) => count },
      { head: "Active", cell: ({ last_activity_at: at }) => <Time at={at} /> },
    ]} />
  );
}

export function Threads() {
  const query = Object.fromEntries(["inbox", "handled", "label"].map((name) => [name, search.value.get(name)?.trim() || undefined]));
  const pages = usePages<Thread>("/v1/threads", { ...query, limit: PAGE });
  const { items, problem, loading, done, more, reload } = pages;
  useRefreshPages("message.*,thread.*,email.accepted,email.held", pages, PAGE);
  const inboxes = useInboxes();
  const filtered = Object.values(query).some(Boolean);
  return (
    <>
      <PageHead title="Threads" intro="Conversations, the most recently active first, and who works on them." />
      <Filters inboxes={inboxes} />
      {problem && <Problem problem={problem} retry={reload} />}
      {items.length === 0 && !problem && !done && <Loading lines={5} />}
      {items.length === 0 && done && (filtered ? <Empty title="No thread matches"><Button onPress={() => setSearch({ inbox: null, handled: null, label: null })}>Clear the filter</Button></Empty> : (
        <Empty title="No conversation yet">
          <p>A message starts a thread, and every reply belongs to it. One agent at a time works on a thread, and each message is answered once.</p>
          <ArrivalCommand options={'--from ann@example.com --text "When do you open?"'} />
        </Empty>
      ))}
      {items.length > 0 && <div class="card flush"><ThreadTable threads={items} inboxes={inboxes} /><More done={done} loading={loading} more={more} /></div>}
    </>
  );
}
