// Commands for pages that are still empty, with an address that this server accepts.
import { useSender } from "../api/sender";
import { Code } from "./Code";
import { Loading } from "./Empty";

/** Sends an email. Running it again sends nothing. */
export function SendCommand() {
  const sender = useSender();
  if (!sender) return <Loading lines={1} />;
  return <Code label="the command" text={`mailonce send --from ${sender.address} --to eve@example.com --subject Hello --text 'Hi Eve' --key hello-1`} />;
}

/** Lets a mail arrive, as if a stranger had sent it. Without an inbox, the first command creates one. */
export function ArrivalCommand({ options }: { options: string }) {
  const sender = useSender();
  if (!sender) return <Loading lines={1} />;
  const create = sender.receives ? "" : `mailonce inbox create --username ${sender.address.split("@")[0]}\n`;
  return <Code label="the command" text={`${create}mailonce simulate inbound${sender.receives ? ` --to ${sender.address}` : ""} ${options}`} />;
}
