// Form fields with label, hint and error.
import type { ComponentChildren } from "preact";
import { useId, useState } from "preact/hooks";

interface FieldProps {
  label: string;
  hint?: ComponentChildren;
  error?: string | null;
  hideLabel?: boolean;
}

interface TextFieldProps extends FieldProps {
  value: string;
  onInput: (value: string) => void;
  type?: "text" | "search" | "email" | "url" | "number" | "datetime-local" | "password";
  placeholder?: string;
  rows?: number;
  required?: boolean;
  inputRef?: { current: HTMLInputElement | null };
}

function Wrapper({ id, label, hint, error, hideLabel, children }: FieldProps & { id: string; children: ComponentChildren }) {
  return (
    <div class="field">
      <label for={id} class={hideLabel ? "visually-hidden" : ""}>{label}</label>
      {children}
      {hint && <p class="hint" id={`${id}-hint`}>{hint}</p>}
      {error && <p class="field-error" id={`${id}-error`}>{error}</p>}
    </div>
  );
}

const describedBy = (id: string, { hint, error }: FieldProps) =>
  [hint ? `${id}-hint` : "", error ? `${id}-error` : ""].filter(Boolean).join(" ") || undefined;

export function TextField(props: TextFieldProps) {
  const id = useId();
  const { value, onInput, type = "text", placeholder, rows, required, error, inputRef } = props;
  const common = {
    id, value, placeholder, required, "aria-describedby": describedBy(id, props), "aria-invalid": Boolean(error), spellcheck: false, autocomplete: "off",
    onInput: (event: Event) => onInput((event.currentTarget as HTMLInputElement | HTMLTextAreaElement).value),
  };
  return (
    <Wrapper {...props} id={id}>
      {rows ? <textarea {...common} rows={rows} spellcheck /> : <input {...common} type={type as "text"} ref={inputRef} />}
    </Wrapper>
  );
}

/** A list in one line, separated by commas or spaces. The text stays as it is typed; the list is what it says. */
export function ListField({ value, onChange, ...props }: Omit<TextFieldProps, "value" | "onInput"> & { value: string[]; onChange: (value: string[]) => void }) {
  const [text, setText] = useState(value.join(", "));
  const listOf = (typed: string) => typed.split(/[\s,]+/).filter(Boolean);
  const isSame = JSON.stringify(listOf(text)) === JSON.stringify(value);
  return <TextField {...props} value={isSame ? text : value.join(", ")} onInput={(typed) => {
    setText(typed);
    onChange(listOf(typed));
  }} />;
}

export interface SelectFieldProps extends FieldProps {
  value: string;
  onChange: (value: string) => void;
  options: [value: string, label: string][];
}

export function SelectField(props: SelectFieldProps) {
  const id = useId();
  return (
    <Wrapper {...props} id={id}>
      <select id={id} value={props.value} aria-describedby={describedBy(id, props)} onChange={(event) => props.onChange(event.currentTarget.value)}>
        {props.options.map(([value, label]) => <option value={value} key={value}>{label}</option>)}
      </select>
    </Wrapper>
  );
}

export function CheckField({ label, checked, onChange, hint }: { label: string; checked: boolean; onChange: (checked: boolean) => void; hint?: string }) {
  const id = useId();
  return (
    <div class="field check">
      <input id={id} type="checkbox" checked={checked} onChange={(event) => onChange(event.currentTarget.checked)} aria-describedby={hint ? `${id}-hint` : undefined} />
      <label for={id}>{label}</label>
      {hint && <p class="hint" id={`${id}-hint`}>{hint}</p>}
    </div>
  );
}
