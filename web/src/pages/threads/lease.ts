// A lease counts until it expires. An expired one is shown as free, because others can take the thread.
import type { Schema } from "../../api/types";

export type Thread = Schema["ThreadBody"];
export type Entry = Schema["ThreadEntryBody"];

export const isHeld = ({ lease }: Thread): boolean => Boolean(lease && Date.parse(lease.expires_at) > Date.now());
