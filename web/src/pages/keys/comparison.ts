// Compares a request with the email that its idempotency key belongs to, field by field.
import { get, post } from "../../api/client";
import { sendBody } from "../../api/send-body";
import type { EmailDetail, Schema } from "../../api/types";

export interface Comparison {
  simulation: Schema["SimulationBody"];
  /** The email that the key belongs to, when there is one. */
  original: EmailDetail | null;
  rows: FieldRow[];
}

export interface FieldRow {
  field: string;
  differs: boolean;
  first: string;
  request: string;
}

const FIELDS = ["from", "to", "cc", "bcc", "reply_to", "subject", "text", "html", "headers", "tags", "metadata", "attachments", "scheduled_at"];
const ADDRESSES = new Set(["to", "cc", "bcc", "reply_to"]);

/** As text for people: one address in a line, objects as JSON. */
function show(field: string, value: unknown): string {
  if (value === null || value === undefined || (typeof value === "object" && Object.keys(value).length === 0)) return "";
  if (ADDRESSES.has(field)) return (Array.isArray(value) ? value : [value]).join("\n");
  return typeof value === "string" ? value.replaceAll("\r\n", "\n") : JSON.stringify(value, null, 2);
}

/** Orders addresses, because the order does not count. */
const comparable = (field: string, text: string) => (ADDRESSES.has(field) ? text.toLowerCase().split("\n").sort().join("\n") : text);

function fieldRows(original: EmailDetail, request: Record<string, unknown>, differing: string[] | null): FieldRow[] {
  const first: Record<string, unknown> = { ...sendBody(original), attachments: original.attachments.map(({ filename, size }) => `${filename ?? "without a name"} (${size} bytes)`) };
  const rows = FIELDS.map((field): FieldRow => {
    const row = { field, first: show(field, first[field]), request: show(field, request[field]) };
    // The server knows: it compares hashes, also of content that is no longer stored.
    return { ...row, differs: differing ? differing.includes(field) : field !== "attachments" && comparable(field, row.first) !== comparable(field, row.request) };
  });
  // Such as "display names" or "operation".
  const others = (differing ?? []).filter((name) => !FIELDS.includes(name)).map((field): FieldRow => ({ field, differs: true, first: "", request: "" }));
  return [...rows.filter(({ first: a, request: b, differs }) => a || b || differs), ...others].sort((a, b) => Number(b.differs) - Number(a.differs));
}

/** Asks the server what the request would do. The key stays as it is, and nothing is sent. */
export async function compare(key: string, request: Record<string, unknown>): Promise<Comparison> {
  const simulation = await post<Schema["SimulationBody"]>("/v1/policy/simulate", request, key ? { key } : {});
  const problem = (simulation.problem ?? {}) as { code?: string; original_email?: string; differing_fields?: string[] };
  const id = simulation.email ?? problem.original_email;
  const original = id ? await get<EmailDetail>(`/v1/emails/${id}`) : null;
  const rows = original ? fieldRows(original, request, problem.differing_fields ?? null) : [];
  return { simulation, original, rows };
}

/** The request as an object, or what is wrong with the text. */
export function parseRequest(text: string): Record<string, unknown> | string {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : "The body must be a JSON object, such as {\"from\": …, \"to\": …}.";
  } catch (error) {
    return `This is not JSON: ${error instanceof Error ? error.message : String(error)}`;
  }
}
