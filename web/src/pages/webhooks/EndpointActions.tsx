// What a person can do with an endpoint.
import { useState } from "preact/hooks";
import { del, intention, post } from "../../api/client";
import type { Schema } from "../../api/types";
import { Button } from "../../components/Button";
import { confirm, Dialog } from "../../components/Dialog";
import { SelectField, TextField } from "../../components/Field";
import { FormDialog, useIntentions } from "../../components/FormDialog";
import { Facts } from "../../components/PageHead";
import { SecretDialog } from "../../components/SecretDialog";
import { StateChip } from "../../components/StateChip";
import { toast } from "../../components/Toast";
import { navigate } from "../../router";
import { EndpointForm, type Endpoint } from "./EndpointForm";

type TestResult = Schema["EndpointTestBody"];

export interface ActionsProps {
  endpoint: Endpoint;
  set: (endpoint: Endpoint) => void;
  /** Loads the notices again. */
  refresh: () => void;
}

const OVERLAPS: [string, string][] = [["24h", "24 hours"], ["1h", "1 hour"], ["7d", "7 days"], ["0s", "Not at all"]];

function TestDialog({ result, close }: { result: TestResult; close: () => void }) {
  return (
    <Dialog title="Test request" onClose={close}>
      <div class="stack">
        <p class="row"><StateChip state={result.delivered ? "delivered" : "failed"} /> {result.latency_ms} ms</p>
        <Facts facts={[["Status", result.status ?? "no response"], ["Error", result.error], ["webhook-id", <code>{result.id}</code>]]} />
        {result.response && <pre class="plain-text" tabIndex={0}>{result.response}</pre>}
      </div>
      <footer><button type="button" class="button" onClick={close}>Close</button></footer>
    </Dialog>
  );
}

function RotateDialog({ endpoint, close, done }: { endpoint: Endpoint; close: () => void; done: (endpoint: Endpoint) => void }) {
  const [ttl, setTtl] = useState("24h");
  const keyOf = useIntentions();
  const submit = async () => {
    const body = { previous_secret_ttl: ttl };
    done(await post<Endpoint>(`/v1/endpoints/${endpoint.id}/rotate`, body, { key: keyOf(body) }));
  };
  return (
    <FormDialog title="Rotate the secret" action="Rotate" onClose={close} submit={submit}>
      <p>A new secret signs from now on. Earlier secrets sign too for a while, so that receivers have time to switch.</p>
      <SelectField label="Earlier secrets stay valid for" value={ttl} onChange={setTtl} options={OVERLAPS} />
    </FormDialog>
  );
}

function RecoverDialog({ endpoint, close, done }: { endpoint: Endpoint; close: () => void; done: () => void }) {
  const [since, setSince] = useState(() => new Date(Date.now() - 86_400_000 - new Date().getTimezoneOffset() * 60_000).toISOString().slice(0, 16));
  const [include, setInclude] = useState("failed");
  const keyOf = useIntentions();
  const submit = async () => {
    const body = { since: new Date(since).toISOString(), include };
    const { requeued } = await post<Schema["RecoveryBody"]>(`/v1/endpoints/${endpoint.id}/recover`, body, { key: keyOf(body) });
    toast(requeued === null || requeued === undefined ? "Recovery began" : `${requeued.toLocaleString("en")} failed ${requeued === 1 ? "notice is" : "notices are"} due now`);
    done();
  };
  return (
    <FormDialog title="Recover" action="Send again" onClose={close} submit={submit}>
      <p>Sends events again since a time, under the same ids, so that a receiver can de-duplicate by <code>webhook-id</code>.</p>
      <TextField label="Since" type="datetime-local" required value={since} onInput={setSince} />
      <SelectField label="What" value={include} onChange={setInclude} options={[["failed", "Only what failed"], ["all", "Everything, also what was delivered"]]} />
    </FormDialog>
  );
}

async function remove(endpoint: Endpoint): Promise<void> {
  const yes = await confirm({ title: "Delete this endpoint?", body: <p>{endpoint.url} receives nothing more, and its pending notices are deleted.</p>, action: "Delete endpoint", danger: true });
  if (!yes) return;
  await del(`/v1/endpoints/${endpoint.id}`);
  toast("Deleted");
  navigate("/webhooks");
}

type Open = { what: "edit" | "rotate" | "recover" } | { what: "test"; result: TestResult } | { what: "secret"; secret: string } | null;

function Dialogs({ endpoint, set, refresh, open, close, show }: ActionsProps & { open: Open; close: () => void; show: (open: Open) => void }) {
  if (!open) return null;
  if (open.what === "test") return <TestDialog result={open.result} close={close} />;
  if (open.what === "secret") return <SecretDialog title="New signing secret" secret={open.secret} label="the signing secret" onClose={close} />;
  if (open.what === "recover") return <RecoverDialog endpoint={endpoint} close={close} done={() => { close(); refresh(); }} />;
  if (open.what === "edit") return <EndpointForm endpoint={endpoint} close={close} done={(next) => { set(next); close(); toast("Saved"); }} />;
  return <RotateDialog endpoint={endpoint} close={close} done={(next) => { set(next); show({ what: "secret", secret: next.secret ?? "" }); }} />;
}

export function EndpointActions(props: ActionsProps) {
  const { endpoint, set, refresh } = props;
  const [open, show] = useState<Open>(null);
  const change = async (verb: "pause" | "resume") => {
    set(await post<Endpoint>(`/v1/endpoints/${endpoint.id}/${verb}`, undefined, { key: intention() }));
    toast(verb === "pause" ? "Paused. No event is lost." : "Deliveries continue");
    refresh();
  };
  const test = async () => show({ what: "test", result: await post<TestResult>(`/v1/endpoints/${endpoint.id}/test`, undefined) });
  return (
    <>
      <Button onPress={test}>Test</Button>
      {endpoint.state === "enabled" ? <Button onPress={() => change("pause")}>Pause</Button> : <Button kind="primary" onPress={() => change("resume")}>Resume</Button>}
      <Button onPress={() => show({ what: "recover" })}>Recover…</Button>
      <Button onPress={() => show({ what: "rotate" })}>Rotate secret…</Button>
      <Button onPress={() => show({ what: "edit" })}>Edit…</Button>
      <Button kind="danger" onPress={() => remove(endpoint)}>Delete</Button>
      <Dialogs {...props} open={open} close={() => show(null)} show={show} />
    </>
  );
}
