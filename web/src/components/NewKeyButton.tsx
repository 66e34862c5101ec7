// Makes an API key for the commands on a page. It is shown once, inside them.
import { useState } from "preact/hooks";
import { intention, post } from "../api/client";
import type { Schema, Scope } from "../api/types";
import { may } from "../session/session";
import { Button } from "./Button";

export function NewKeyButton({ name, scopes, onKey }: { name: string; scopes: Scope[]; onKey: (key: string) => void }) {
  const [intent] = useState(intention);
  if (!may("admin")) return <p class="hint">Set <code>MAILONCE_API_KEY</code> first. <code>mailonce dev</code> prints one at its start.</p>;
  const create = async () => onKey((await post<Schema["CreatedApiKeyBody"]>("/v1/api-keys", { name, scopes }, { key: intent })).api_key);
  return <p><Button class="small" onPress={create}>Fill in a new API key</Button></p>;
}
