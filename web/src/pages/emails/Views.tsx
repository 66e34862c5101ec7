// The row of views above the list.
import { useState } from "preact/hooks";
import { Button } from "../../components/Button";
import { Dialog } from "../../components/Dialog";
import { TextField } from "../../components/Field";
import { navigate, search } from "../../router";
import { BUILT_IN, removeView, saveView, views } from "./saved-views";

const go = (query: string) => navigate(query ? `/emails?${query}` : "/emails");

function SaveDialog({ query, close }: { query: string; close: () => void }) {
  const [name, setName] = useState("");
  const save = () => {
    if (!name.trim()) return;
    saveView(name.trim(), query);
    close();
  };
  return (
    <Dialog title="Save this view" onClose={close}>
      <div class="stack">
        <TextField label="Name" value={name} onInput={setName} />
        <p class="muted">The filter <code>{query}</code> is kept in this browser.</p>
      </div>
      <footer><Button onPress={close}>Back</Button><Button kind="primary" onPress={save}>Save</Button></footer>
    </Dialog>
  );
}

export function Views() {
  const [saving, setSaving] = useState(false);
  const current = search.value.toString();
  const known = [...BUILT_IN, ...views.value].some(({ query }) => query === current);
  return (
    <div class="row" role="group" aria-label="Views">
      {BUILT_IN.map(({ name, query }) => <button type="button" class="button small" key={name} aria-pressed={query === current} onClick={() => go(query)}>{name}</button>)}
      {views.value.map(({ name, query }) => (
        <span class="emails-view" key={name}>
          <button type="button" class="button small" aria-pressed={query === current} onClick={() => go(query)}>{name}</button>
          <button type="button" class="button quiet small" aria-label={`Remove view ${name}`} onClick={() => removeView(name)}>×</button>
        </span>
      ))}
      {!known && <Button kind="quiet" class="small" onPress={() => setSaving(true)}>Save view…</Button>}
      {saving && <SaveDialog query={current} close={() => setSaving(false)} />}
    </div>
  );
}
