// Programs that people connected with their own sign-in, such as MCP clients.
import { del, get } from "../../api/client";
import { useLoad } from "../../api/load";
import { isMissing } from "../../api/problem";
import type { Page } from "../../api/types";
import { Button } from "../../components/Button";
import { confirm } from "../../components/Dialog";
import { NotServed, Problem } from "../../components/Problem";
import { Table } from "../../components/Table";
import { Time } from "../../components/Time";
import { toast } from "../../components/Toast";
import { may } from "../../session/session";

type Named = string | { id?: string; name?: string };

/** `GET /v1/connections`, which openapi.json does not describe yet. */
interface Connection {
  id: string;
  person: Named;
  client: Named;
  scopes: string[];
  inboxes: string[];
  created_at: string;
  last_used_at?: string | null;
}

const nameOf = (value: Named): string => (typeof value === "string" ? value : value.name ?? value.id ?? "");

function ConnectionTable({ connections, ended }: { connections: Connection[]; ended: () => void }) {
  const end = async (connection: Connection) => {
    const yes = await confirm({ title: `Disconnect ${nameOf(connection.client)}?`, body: <p>It can no longer act for {nameOf(connection.person)}.</p>, action: "Disconnect", danger: true });
    if (!yes) return;
    await del(`/v1/connections/${connection.id}`);
    toast("Disconnected");
    ended();
  };
  return (
    <Table label="Connections" rows={connections} keyOf={({ id }) => id} columns={[
      { head: "Program", cell: ({ client, person }) => <><strong>{nameOf(client)}</strong><span class="sub">for {nameOf(person)}</span></> },
      { head: "Scopes", wide: true, cell: ({ scopes }) => scopes.join(", ") },
      { head: "Inboxes", wide: true, cell: ({ inboxes }) => (inboxes.length > 0 ? inboxes.join(", ") : "all") },
      { head: "Last used", cell: ({ last_used_at: at }) => (at ? <Time at={at} /> : <span class="muted">never</span>) },
      { head: "Actions", cell: (connection) => <Button class="small" kind="danger" disabled={!may("admin")} label={`Disconnect ${nameOf(connection.client)}`} onPress={() => end(connection)}>Disconnect</Button> },
    ]} />
  );
}

export function Connections() {
  const { data, problem, reload } = useLoad((signal) => get<Page<Connection>>("/v1/connections", {}, { signal }), []);
  return (
    <section class="stack" aria-labelledby="connections">
      <h2 id="connections">Connections</h2>
      {problem && (isMissing(problem) ? <NotServed what="connections" /> : <Problem problem={problem} retry={reload} />)}
      {data && data.data.length === 0 && <p class="muted">None. MCP clients that sign in with a person's account appear here, and can be disconnected.</p>}
      {data && data.data.length > 0 && <div class="card flush"><ConnectionTable connections={data.data} ended={() => void reload()} /></div>}
    </section>
  );
}
