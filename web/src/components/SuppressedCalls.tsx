// The duplicate calls of an email: who called, how, and why nothing was sent.
import type { Schema } from "../api/types";
import { Table } from "./Table";
import { Time } from "./Time";

export type SuppressedCall = Schema["SuppressedCallBody"];

export const REASONS: Record<SuppressedCall["reason"], string> = {
  key_replay: "Same key, same email",
  payload_differs: "Same key, other words: the first email counts",
  mismatch: "Same key, different email: refused",
  already_answered: "The message was already answered",
  identical: "Identical email without a key",
};

const CHANNELS: Record<string, string> = { http: "HTTP API", batch: "batch", cli: "command line", mcp: "MCP", outbox: "database outbox", resend: "Resend API", usesend: "useSend API", agentmail: "AgentMail API" };

export const channelName = (channel: string): string => CHANNELS[channel] ?? channel;

/** The caller's own id of the call, else its API key. Ids begin with the time, so only their ends tell API keys apart. */
export const callerOf = ({ call, caller }: SuppressedCall): string => call?.id ?? (caller ? `API key …${caller.slice(-8)}` : "unknown caller");

export function SuppressedCalls({ calls, total }: { calls: SuppressedCall[]; total: number }) {
  return (
    <div class="stack">
      <Table label="Duplicate calls" rows={calls} keyOf={(call) => `${call.at} ${call.caller ?? ""} ${call.reason} ${calls.indexOf(call)}`} columns={[
        { head: "When", cell: ({ at }) => <Time at={at} /> },
        { head: "Why nothing was sent", cell: ({ reason }) => REASONS[reason] ?? reason },
        { head: "Through", cell: ({ channel }) => channelName(channel) },
        { head: "Caller", wide: true, cell: (call) => <span title={call.caller ?? undefined}>{callerOf(call)}</span> },
      ]} />
      {total > calls.length && <p class="muted small-text">The latest {calls.length} of {total.toLocaleString("en")} calls are kept one by one.</p>}
    </div>
  );
}
