// Sending domains: DNS records to publish, and their check.
import { useState } from "preact/hooks";
import { del, intention, post } from "../../api/client";
import { useRefreshOn } from "../../api/events";
import { usePages } from "../../api/load";
import type { Schema } from "../../api/types";
import { ApiCommand } from "../../components/ApiCommand";
import { Button } from "../../components/Button";
import { CopyButton } from "../../components/Code";
import { confirm } from "../../components/Dialog";
import { Empty, Loading } from "../../components/Empty";
import { TextField } from "../../components/Field";
import { FormDialog, useIntentions } from "../../components/FormDialog";
import { Problem } from "../../components/Problem";
import { StateChip, type Tone } from "../../components/StateChip";
import { More } from "../../components/Table";
import { Time } from "../../components/Time";
import { toast } from "../../components/Toast";
import { may } from "../../session/session";
import { SetupPage } from "./SetupPage";

type Domain = Schema["DomainBody"];
type DnsRecord = Schema["DnsRecordBody"];

const STATUS_TONES: Record<string, Tone> = { found: "good", missing: "bad", different: "bad", unknown: "wait" };
const PURPOSES = { ownership: "Ownership", dkim: "Signature (DKIM)", spf: "Senders (SPF)", dmarc: "Policy (DMARC)" };

function RecordRow({ record }: { record: DnsRecord }) {
  return (
    <li class="setup-record">
      <div class="row">
        <strong>{PURPOSES[record.purpose]}</strong>
        <span class="muted">{record.type}</span>
        {record.required ? record.status && <StateChip state={record.status} tone={STATUS_TONES[record.status]} /> : <span class="chip">recommended</span>}
      </div>
      <div class="setup-copy"><span class="muted">Name</span><code>{record.name}</code><CopyButton text={record.name} label={`the name of ${record.name}`} /></div>
      <div class="setup-copy"><span class="muted">Value</span><code>{record.value}</code><CopyButton text={record.value} label={`the value of ${record.name}`} /></div>
    </li>
  );
}

function DomainCard({ domain, update, removed }: { domain: Domain; update: (domain: Domain) => void; removed: () => void }) {
  const check = async () => {
    const checked = await post<Domain>(`/v1/domains/${domain.id}/verify`, undefined, { key: intention() });
    update(checked);
    toast(checked.state === "verified" ? `${domain.name} is verified` : `${domain.name}: not all required records were found`);
  };
  const remove = async () => {
    const yes = await confirm({ title: `Remove ${domain.name}?`, body: <p>Its signing keys are deleted. Adding it again makes new keys and other DNS records.</p>, action: "Remove domain", danger: true });
    if (!yes) return;
    await del(`/v1/domains/${domain.id}`);
    removed();
  };
  return (
    <section class="card stack" aria-label={domain.name}>
      <div class="row spread">
        <h2 class="row">{domain.name} <StateChip state={domain.state} /></h2>
        <div class="row">
          <Button kind={domain.state === "verified" ? "plain" : "primary"} disabled={!may("admin")} onPress={check}>Check DNS</Button>
          <Button kind="danger" disabled={!may("admin")} onPress={remove}>Remove</Button>
        </div>
      </div>
      <p class="muted">{domain.checked_at ? <>Checked <Time at={domain.checked_at} />.</> : "Not checked yet. Publish the required records at your DNS provider, then check."}</p>
      <details open={domain.state !== "verified"}>
        <summary>DNS records ({domain.records.length})</summary>
        <ul class="stack setup-records">{domain.records.map((record) => <RecordRow record={record} key={record.name + record.purpose} />)}</ul>
      </details>
    </section>
  );
}

function AddDialog({ close, done }: { close: () => void; done: () => void }) {
  const [name, setName] = useState("");
  const keyOf = useIntentions();
  const submit = async () => {
    const body = { name: name.trim() };
    await post<Domain>("/v1/domains", body, { key: keyOf(body) });
    done();
  };
  return (
    <FormDialog title="Add a domain" action="Add domain" onClose={close} submit={submit}>
      <TextField label="Domain" required value={name} onInput={setName} placeholder="example.com" hint="It covers the domains below it." />
    </FormDialog>
  );
}

export function Domains() {
  const { items, problem, loading, done, more, reload, update } = usePages<Domain>("/v1/domains", { limit: 50 });
  const [adding, setAdding] = useState(false);
  useRefreshOn("domain.*", () => void reload());
  const added = () => {
    setAdding(false);
    void reload();
  };
  return (
    <SetupPage section="domains" actions={<Button kind="primary" disabled={!may("admin")} onPress={() => setAdding(true)}>Add domain…</Button>}>
      {problem && <Problem problem={problem} retry={reload} />}
      {items.length === 0 && loading && !done && <Loading />}
      {items.length === 0 && done && (
        <Empty title="No domain yet">
          <p>Add the domain of your senders. You get the DNS records to publish; a check then verifies them.</p>
          <p><code>mailonce dev</code> needs none, because the sandbox captures all mail.</p>
          <ApiCommand path="/v1/domains" body={{ name: "example.com" }} />
        </Empty>
      )}
      {items.map((domain) => (
        <DomainCard key={domain.id} domain={domain} removed={() => void reload()} update={(next) => update((all) => all.map((other) => (other.id === next.id ? next : other)))} />
      ))}
      <More done={done || items.length === 0} loading={loading} more={more} />
      {adding && <AddDialog close={() => setAdding(false)} done={added} />}
    </SetupPage>
  );
}
