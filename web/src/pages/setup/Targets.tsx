// Notification targets: where new questions are posted, each with a link that decides.
import { useState } from "preact/hooks";
import { del, post } from "../../api/client";
import { usePages } from "../../api/load";
import type { Schema } from "../../api/types";
import { ApiCommand } from "../../components/ApiCommand";
import { Button } from "../../components/Button";
import { confirm } from "../../components/Dialog";
import { SelectField, TextField } from "../../components/Field";
import { FormDialog } from "../../components/FormDialog";
import { Problem } from "../../components/Problem";
import { SecretDialog } from "../../components/SecretDialog";
import { Table } from "../../components/Table";
import { Time } from "../../components/Time";
import { toast } from "../../components/Toast";

type Target = Schema["NotificationTargetBody"];
type Created = Target & { secret: string };

function TargetForm({ close, done }: { close: () => void; done: (created: Created) => void }) {
  const [name, setName] = useState("");
  const [kind, setKind] = useState("slack");
  const [url, setUrl] = useState("");
  const submit = async () => done(await post<Created>("/v1/notification-targets", { name: name.trim(), kind, url: url.trim() }));
  return (
    <FormDialog title="Add a notification target" action="Add target" onClose={close} submit={submit}>
      <p>Every new question is posted there with a link that decides. Post only to places that nobody but deciders can read.</p>
      <TextField label="Name" required value={name} onInput={setName} placeholder="#approvals" />
      <SelectField label="Kind" value={kind} onChange={setKind} options={[["slack", "Slack incoming webhook"], ["webhook", "Webhook with JSON, signed"]]} />
      <TextField label="URL" type="url" required value={url} onInput={setUrl} placeholder="https://hooks.slack.com/services/…" hint="https. It is not shown again." />
    </FormDialog>
  );
}

async function test(target: Target): Promise<void> {
  const result = await post<Schema["NotificationTargetTestBody"]>(`/v1/notification-targets/${target.id}/test`, undefined);
  toast(result.ok ? `${target.name} accepted the test message` : `${target.name} did not accept it: ${result.error ?? `status ${result.status ?? "unknown"}`}`);
}

export function Targets() {
  const { items, problem, done, reload } = usePages<Target>("/v1/notification-targets", { limit: 50 });
  const [adding, setAdding] = useState(false);
  const [created, setCreated] = useState<Created | null>(null);
  const finish = (target: Created) => {
    setAdding(false);
    if (target.kind === "webhook") setCreated(target);
    void reload();
  };
  const remove = async (target: Target) => {
    const yes = await confirm({ title: `Remove ${target.name}?`, body: <p>Links that were posted there stop working.</p>, action: "Remove target", danger: true });
    if (!yes) return;
    await del(`/v1/notification-targets/${target.id}`);
    await reload();
  };
  return (
    <section class="stack" aria-labelledby="targets">
      <div class="row spread">
        <h2 id="targets">Notification targets</h2>
        <Button onPress={() => setAdding(true)}>Add target…</Button>
      </div>
      {problem && <Problem problem={problem} retry={reload} />}
      {items.length === 0 && done && (
        <>
          <p class="muted">None. Questions can be posted to Slack or to a webhook of yours, each with a link that works on a phone.</p>
          <ApiCommand path="/v1/notification-targets" body={{ name: "#approvals", kind: "slack", url: "https://hooks.slack.com/services/T000/B000/XXXX" }} />
        </>
      )}
      {items.length > 0 && (
        <div class="card flush">
          <Table label="Notification targets" rows={items} keyOf={({ id }) => id} columns={[
            { head: "Name", cell: ({ name }) => <strong>{name}</strong> },
            { head: "Kind", cell: ({ kind }) => kind },
            { head: "Added", wide: true, cell: ({ created_at: at }) => <Time at={at} /> },
            { head: "Actions", cell: (target) => <div class="row"><Button class="small" label={`Test ${target.name}`} onPress={() => test(target)}>Test</Button><Button class="small" kind="danger" label={`Remove ${target.name}`} onPress={() => remove(target)}>Remove</Button></div> },
          ]} />
        </div>
      )}
      {adding && <TargetForm close={() => setAdding(false)} done={finish} />}
      {created && <SecretDialog title="Signing secret" secret={created.secret} label="the signing secret" onClose={() => setCreated(null)} />}
    </section>
  );
}
