// Adds or changes a person.
import { useState } from "preact/hooks";
import { patch, post } from "../../api/client";
import type { Schema } from "../../api/types";
import { SelectField, TextField } from "../../components/Field";
import { FormDialog, useIntentions } from "../../components/FormDialog";

export type Person = Schema["PersonBody"];

const ROLES: [Person["role"], string][] = [["viewer", "Viewer: sees everything but secrets"], ["approver", "Approver: also decides what waits"], ["admin", "Admin: everything of the team"]];

export function PersonForm({ person, close, done }: { person: Person | null; close: () => void; done: () => void }) {
  const [name, setName] = useState(person?.name ?? "");
  const [address, setAddress] = useState(person?.address ?? "");
  const [role, setRole] = useState<string>(person?.role ?? "approver");
  const keyOf = useIntentions();
  const submit = async () => {
    const body = { name: name.trim(), address: address.trim() || null, role };
    if (person) await patch<Person>(`/v1/people/${person.id}`, { rev: person.rev, ...body });
    else await post<Person>("/v1/people", body, { key: keyOf(body) });
    done();
  };
  return (
    <FormDialog title={person ? `Change ${person.name}` : "Add a person"} action={person ? "Save" : "Add person"} onClose={close} submit={submit}>
      <TextField label="Name" required value={name} onInput={setName} placeholder="Ada" />
      <TextField label="Address" type="email" value={address} onInput={setAddress} placeholder="ada@example.com" hint="Questions are sent there." />
      <SelectField label="Role" value={role} onChange={setRole} options={ROLES} hint={person ? "A new role counts within a second, also for open sessions." : undefined} />
    </FormDialog>
  );
}
