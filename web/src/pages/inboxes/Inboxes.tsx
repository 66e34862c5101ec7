// All inboxes of the team.
import { useState } from "preact/hooks";
import { usePages } from "../../api/load";
import { useRefreshPages } from "../../api/refresh";
import type { Schema } from "../../api/types";
import { Button } from "../../components/Button";
import { Code } from "../../components/Code";
import { Empty, Loading } from "../../components/Empty";
import { useShortcuts } from "../../components/keys";
import { PageHead } from "../../components/PageHead";
import { Problem } from "../../components/Problem";
import { More, Table } from "../../components/Table";
import { Time } from "../../components/Time";
import { NewInboxDialog } from "./NewInboxDialog";

type Inbox = Schema["InboxBody"];

const PAGE = 100;
const isOver = ({ expires_at: at }: Inbox) => Boolean(at && Date.parse(at) <= Date.now());

function Lifetime({ inbox }: { inbox: Inbox }) {
  if (!inbox.expires_at) return <>permanent</>;
  return <>{isOver(inbox) ? "ended" : "ends"} <Time at={inbox.expires_at} /></>;
}

function InboxTable({ inboxes }: { inboxes: Inbox[] }) {
  return (
    <Table label="Inboxes" rows={inboxes} keyOf={({ id }) => id} href={({ id }) => `/inboxes/${id}`} columns={[
      { head: "Address", cell: (inbox) => <>{inbox.address} {inbox.catch_all && <span class="chip busy">catch-all</span>} {isOver(inbox) && <span class="chip plain">ended</span>}</> },
      { head: "Name and agent", wide: true, cell: ({ name, agent }) => <>{name}{name && agent && " · "}{agent && <span class="muted">{agent}</span>}</> },
      { head: "Messages", number: true, cell: ({ message_count: count }) => count.toLocaleString("en") },
      { head: "Lifetime", wide: true, cell: (inbox) => <Lifetime inbox={inbox} /> },
    ]} />
  );
}

export function Inboxes() {
  const [creating, setCreating] = useState(false);
  const pages = usePages<Inbox>("/v1/inboxes", { limit: PAGE });
  const { items, problem, loading, done, more, reload } = pages;
  useRefreshPages("message.received", pages, PAGE);
  useShortcuts("Inboxes", [{ keys: "c", does: "create an inbox", run: () => setCreating(true) }]);
  return (
    <>
      <PageHead title="Inboxes" intro="Addresses where agents receive mail. Each mail is stored once, and each code in it can be taken once.">
        <Button kind="primary" onPress={() => setCreating(true)}>Create inbox…</Button>
      </PageHead>
      {problem && <Problem problem={problem} retry={reload} />}
      {items.length === 0 && !problem && !done && <Loading lines={5} />}
      {items.length === 0 && done && (
        <Empty title="No inbox yet">
          <p>An inbox receives mail for one address. Agents wait for messages in it, take codes, and reply.</p>
          <Code label="the command" text="mailonce inbox create --username orders" />
        </Empty>
      )}
      {items.length > 0 && <div class="card flush"><InboxTable inboxes={items} /><More done={done} loading={loading} more={more} /></div>}
      {creating && <NewInboxDialog close={() => setCreating(false)} />}
    </>
  );
}
