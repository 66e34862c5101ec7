// A call in the language that the user works in. The choice is kept for the next call.
import { signal } from "@preact/signals";
import { LANGUAGES, snippet, type ApiCall, type Language } from "../api/snippets";
import { Code } from "./Code";

const language = signal<Language>("curl");

export function CallTabs({ call, label }: { call: ApiCall; label: string }) {
  const text = snippet(call, language.value);
  return (
    <div class="stack">
      <div class="row" role="group" aria-label={`Language of ${label}`}>
        {LANGUAGES.map((name) => <button type="button" class="button small" key={name} aria-pressed={name === language.value} onClick={() => (language.value = name)}>{name}</button>)}
      </div>
      {text === null ? <p class="muted">No MCP tool makes this call. Models use the ten tools in <a href="/docs" target="_blank" rel="noreferrer">the API reference</a>.</p> : <Code text={text} label={label} wrap />}
    </div>
  );
}
