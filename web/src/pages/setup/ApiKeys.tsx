// API keys of the team, without their secrets.
import { useState } from "preact/hooks";
import { del, get } from "../../api/client";
import { getAll, useLoad } from "../../api/load";
import type { Page, Schema } from "../../api/types";
import { Button } from "../../components/Button";
import { confirm } from "../../components/Dialog";
import { Code } from "../../components/Code";
import { Empty, Loading } from "../../components/Empty";
import { Problem } from "../../components/Problem";
import { SecretDialog } from "../../components/SecretDialog";
import { StateChip } from "../../components/StateChip";
import { Table } from "../../components/Table";
import { Time } from "../../components/Time";
import { toast } from "../../components/Toast";
import { may } from "../../session/session";
import { ApiKeyForm, type CreatedKey } from "./ApiKeyForm";
import { SetupPage } from "./SetupPage";

type ApiKey = Schema["ApiKeyBody"];

async function load(signal: AbortSignal) {
  const [keys, inboxes] = await Promise.all([
    get<Page<ApiKey>>("/v1/api-keys", {}, { signal }),
    getAll<Schema["InboxBody"]>("/v1/inboxes", signal),
  ]);
  return { keys: keys.data, inboxes: inboxes.map(({ id, address }): [string, string] => [id, address]) };
}

const stateOf = (key: ApiKey): string =>
  key.revoked_at ? "revoked" : key.expires_at && Date.parse(key.expires_at) < Date.now() ? "expired" : "active";

function LimitWords({ apiKey, inboxes }: { apiKey: ApiKey; inboxes: [string, string][] }) {
  const names = apiKey.inboxes.map((id) => inboxes.find(([other]) => other === id)?.[1] ?? id);
  const words = [...names, ...apiKey.allowed_senders, ...apiKey.allow_ips, apiKey.rate_per_s ? `${apiKey.rate_per_s}/s` : ""].filter(Boolean);
  return words.length > 0 ? <span>{words.join(", ")}</span> : <span class="muted">none</span>;
}

async function revoke(key: ApiKey): Promise<boolean> {
  const yes = await confirm({ title: `Revoke ${key.name}?`, body: <p>Calls with it are refused within two seconds, and its open streams end. This cannot be undone.</p>, action: "Revoke key", danger: true });
  if (yes) await del(`/v1/api-keys/${key.id}`);
  return yes;
}

function KeyTable({ keys, inboxes, revoked }: { keys: ApiKey[]; inboxes: [string, string][]; revoked: () => void }) {
  return (
    <Table label="API keys" rows={keys} keyOf={({ id }) => id} columns={[
      { head: "Name", cell: ({ name, secret_prefix: prefix }) => <><strong>{name}</strong><span class="sub"><code>{prefix}…</code></span></> },
      { head: "State", cell: (key) => <StateChip state={stateOf(key)} /> },
      { head: "Scopes", wide: true, cell: ({ scopes }) => scopes.join(", ") },
      { head: "Limits", wide: true, cell: (key) => <LimitWords apiKey={key} inboxes={inboxes} /> },
      { head: "Last used", cell: ({ last_used_at: at }) => (at ? <Time at={at} /> : <span class="muted">never</span>) },
      { head: "Actions", cell: (key) => !key.revoked_at && (
        <Button class="small" kind="danger" disabled={!may("admin")} label={`Revoke ${key.name}`} onPress={async () => void ((await revoke(key)) && revoked())}>Revoke</Button>
      ) },
    ]} />
  );
}

export function ApiKeys() {
  const { data, problem, reload } = useLoad(load, []);
  const [adding, setAdding] = useState(false);
  const [created, setCreated] = useState<CreatedKey | null>(null);
  const finish = (key: CreatedKey) => {
    setAdding(false);
    setCreated(key);
    void reload();
  };
  const revoked = () => {
    toast("Revoked");
    void reload();
  };
  return (
    <SetupPage section="api-keys" actions={<Button kind="primary" disabled={!may("admin") || !data} onPress={() => setAdding(true)}>Create API key…</Button>}>
      {problem && <Problem problem={problem} retry={reload} />}
      {!data && !problem && <Loading />}
      {data && data.keys.length === 0 && <Empty title="No API key yet"><p>Create one for each program, so that you can revoke it without stopping the others.</p><Code label="the command" text="mailonce api-keys create --name order-agent --scope send --scope read" /></Empty>}
      {data && data.keys.length > 0 && <div class="card flush"><KeyTable keys={data.keys} inboxes={data.inboxes} revoked={revoked} /></div>}
      {adding && data && <ApiKeyForm inboxes={data.inboxes} close={() => setAdding(false)} done={finish} />}
      {created && <SecretDialog title="API key" secret={created.api_key} label="the API key" onClose={() => setCreated(null)}><p>Programs send it as <code>Authorization: Bearer …</code>, or read it from <code>MAILONCE_API_KEY</code>.</p></SecretDialog>}
    </SetupPage>
  );
}
