// Remembers a key for longer.
import { useState } from "preact/hooks";
import { patch } from "../../api/client";
import type { Schema } from "../../api/types";
import { SelectField, TextField } from "../../components/Field";
import { FormDialog } from "../../components/FormDialog";
import { toast } from "../../components/Toast";

const CHOICES: [string, string][] = [["35d", "35 days"], ["90d", "90 days"], ["180d", "180 days"], ["400d", "400 days, the longest"], ["", "Another time…"]];

export function ExtendDialog({ data, close, reload }: { data: Schema["KeyBody"]; close: () => void; reload: () => Promise<void> }) {
  const [choice, setChoice] = useState("90d");
  const [other, setOther] = useState("");
  const extend = async () => {
    await patch(`/v1/keys/${encodeURIComponent(data.key)}`, { ttl: choice || other.trim() });
    close();
    toast("The key is remembered for longer");
    await reload();
  };
  return (
    <FormDialog title="Remember this key longer" action="Remember" onClose={close} submit={extend}>
      <p>It is remembered for {data.ttl ?? "35d"} now. The time counts from the end of the email.</p>
      <SelectField label="Remember it for" value={choice} onChange={setChoice} options={CHOICES} />
      {choice === "" && <TextField label="Time" value={other} onInput={setOther} placeholder="120d" hint="1s to 400d, longer than now" />}
    </FormDialog>
  );
}
