// Programs that people connected with their own sign-in, such as MCP clients.
import { del } from "../../api/client";
import { usePages } from "../../api/load";
import { isMissing } from "../../api/problem";
import type { Schema } from "../../api/types";
import { Button } from "../../components/Button";
import { Code } from "../../components/Code";
import { confirm } from "../../components/Dialog";
import { NotServed, Problem } from "../../components/Problem";
import { More, Table } from "../../components/Table";
import { Time } from "../../components/Time";
import { toast } from "../../components/Toast";
import { may, sessionState } from "../../session/session";

type Connection = Schema["ConnectionBody"];

/** Null stands for all inboxes, which is what the page of consent offers first. */
const inboxesOf = ({ inboxes }: Connection): string => (inboxes ? `${inboxes.length} chosen` : "all");

const mayEnd = ({ person }: Connection): boolean =>
  may("admin") || (sessionState.value.status === "in" && sessionState.value.session.person.id === person.id);

function ConnectionTable({ connections, ended }: { connections: Connection[]; ended: () => void }) {
  const end = async (connection: Connection) => {
    const yes = await confirm({ title: `Disconnect ${connection.client.name}?`, body: <p>It can no longer act for {connection.person.name}.</p>, action: "Disconnect", danger: true });
    if (!yes) return;
    await del(`/v1/connections/${connection.id}`);
    toast("Disconnected");
    ended();
  };
  return (
    <Table label="Connections" rows={connections} keyOf={({ id }) => id} columns={[
      { head: "Program", cell: ({ client, person }) => <><strong>{client.name}</strong><span class="sub">for {person.name}</span></> },
      { head: "Scopes", wide: true, cell: ({ scopes }) => scopes.join(", ") },
      { head: "Inboxes", wide: true, cell: inboxesOf },
      { head: "Last used", cell: ({ last_used_at: at }) => (at ? <Time at={at} /> : <span class="muted">never</span>) },
      { head: "Actions", cell: (connection) => <Button class="small" kind="danger" disabled={!mayEnd(connection)} label={`Disconnect ${connection.client.name}`} onPress={() => end(connection)}>Disconnect</Button> },
    ]} />
  );
}

export function Connections() {
  const { items, problem, loading, done, more, reload } = usePages<Connection>("/v1/connections", { limit: 20 });
  return (
    <section class="stack" aria-labelledby="connections">
      <h2 id="connections">Connections</h2>
      {problem && (isMissing(problem) ? <NotServed what="connections" /> : <Problem problem={problem} retry={reload} />)}
      {items.length === 0 && done && (
        <>
          <p class="muted">None. MCP clients that sign in with a person's account appear here, and can be disconnected. Give a client this URL, and agree in your browser:</p>
          <Code label="the URL of the MCP server" text={`${window.location.origin}/mcp`} />
        </>
      )}
      {items.length > 0 && <div class="card flush"><ConnectionTable connections={items} ended={() => void reload()} /></div>}
      <More done={done || items.length === 0} loading={loading} more={more} />
    </section>
  );
}
