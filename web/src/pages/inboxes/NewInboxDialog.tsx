// Creates an inbox.
import { useState } from "preact/hooks";
import { post } from "../../api/client";
import { withoutEmpty } from "../../api/send-body";
import type { Schema } from "../../api/types";
import { SelectField, TextField } from "../../components/Field";
import { FormDialog, useIntentions } from "../../components/FormDialog";
import { toast } from "../../components/Toast";
import { navigate } from "../../router";

const LIFETIMES: [string, string][] = [["", "Permanent"], ["30m", "30 minutes"], ["24h", "24 hours"], ["7d", "7 days"]];

export function NewInboxDialog({ close }: { close: () => void }) {
  const [form, setForm] = useState({ address: "", name: "", agent: "", ttl: "" });
  const keyOf = useIntentions();
  const change = (member: keyof typeof form) => (value: string) => setForm((old) => ({ ...old, [member]: value }));
  const create = async () => {
    const { address, name, agent, ttl } = form;
    const where = address.includes("@") ? { address: address.trim() } : { username: address.trim() };
    const body = withoutEmpty({ ...where, name: name.trim(), agent: agent.trim(), ttl });
    const inbox = await post<Schema["InboxBody"]>("/v1/inboxes", body, { key: keyOf(body) });
    close();
    toast(`${inbox.address} receives mail`);
    navigate(`/inboxes/${inbox.id}`);
  };
  return (
    <FormDialog title="Create an inbox" action="Create inbox" onClose={close} submit={create}>
      <TextField label="Address" value={form.address} onInput={change("address")} placeholder="orders" hint="A name, or a whole address. Leave it empty for a random one." />
      <TextField label="Display name" value={form.name} onInput={change("name")} placeholder="Order desk" hint="Shown to people who get mail from this inbox." />
      <TextField label="Agent" value={form.agent} onInput={change("agent")} placeholder="order-bot" />
      <SelectField label="Lifetime" value={form.ttl} onChange={change("ttl")} options={LIFETIMES} hint="Afterwards it refuses mail and keeps its history." />
    </FormDialog>
  );
}
