// Stop a scope, and end a stop.
import { useState } from "preact/hooks";
import { del, post, withQuery } from "../../api/client";
import { SelectField, TextField } from "../../components/Field";
import { FormDialog, useIntentions } from "../../components/FormDialog";
import { toast } from "../../components/Toast";
import { scopeName, type LevelWords, type Names, type Stop, type StopScope } from "./scopes";

const MODES: [string, string][] = [["wait", "Accept it, and let it wait"], ["refuse", "Refuse it with 409 stopped"]];

export function StopDialog({ level, options, close, done }: { level: LevelWords; options: [string, string][]; close: () => void; done: () => void }) {
  const [target, setTarget] = useState(options[0]?.[0] ?? "");
  const [reason, setReason] = useState("");
  const [mode, setMode] = useState("wait");
  const keyOf = useIntentions();
  const named = level.level !== "installation" && level.level !== "team";
  const scope: StopScope = named ? { [level.level]: target } : { [level.level]: true };
  const submit = async () => {
    const body = { scope, mode, reason: reason.trim() || null };
    await post<Stop>("/v1/stops", body, { key: keyOf(body) });
    toast("Stopped. No further email of this scope leaves.");
    done();
  };
  return (
    <FormDialog title={`Stop: ${level.label.toLowerCase() === "api key" ? "API key" : level.label.toLowerCase()}`} action="Stop" danger onClose={close} submit={submit} disabled={named && !target}>
      <p>{level.covers} stops leaving, on every node, as soon as this call is answered. Email stays queued; nothing is lost. An attempt that is running already may still arrive.</p>
      {named && <SelectField label={level.label} value={target} onChange={setTarget} options={options} />}
      <TextField label="Reason" value={reason} onInput={setReason} placeholder="Answers in a loop" hint="Everybody who looks at the stop sees it." />
      <SelectField label="New email meanwhile" value={mode} onChange={setMode} options={MODES} />
    </FormDialog>
  );
}

export function ResumeDialog({ stop, names, close, done }: { stop: Stop; names: Names; close: () => void; done: () => void }) {
  const [rate, setRate] = useState("");
  const submit = async () => {
    await del<Stop>(withQuery(`/v1/stops/${stop.id}`, { rate_per_s: rate }));
    toast("The stop has ended. Its email is released.");
    done();
  };
  return (
    <FormDialog title={stop.state === "releasing" ? "Change the rate" : "Resume"} action={stop.state === "releasing" ? "Change" : "Resume"} onClose={close} submit={submit}>
      <p><strong>{scopeName(stop.scope, names)}</strong>: its email leaves in the order in which it was due.</p>
      <TextField label="Handoffs per second, at most" type="number" value={rate} onInput={setRate} placeholder="All at once" hint="1 to 10,000. A rate protects a transport after a long stop." />
    </FormDialog>
  );
}
