// Sends an email with types generated from openapi.json, and reads it back. The compiler checks every name and word.
import type { paths, webhooks } from "./api.js";

type Send = paths["/v1/emails"]["post"];
type Receipt = Send["responses"][202]["content"]["application/json"];
type List = paths["/v1/emails"]["get"];
type ListQuery = NonNullable<List["parameters"]["query"]>;
type Detail = paths["/v1/emails/{id}"]["get"]["responses"][200]["content"]["application/json"];

const url = process.env.MAILONCE_URL!;
const authorization = `Bearer ${process.env.MAILONCE_API_KEY}`;

async function call<T>(method: string, path: string, body?: unknown, key?: string): Promise<T> {
  const headers: Record<string, string> = { authorization };
  if (body !== undefined) headers["content-type"] = "application/json";
  if (key !== undefined) headers["idempotency-key"] = key;
  const answer = await fetch(url + path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  if (!answer.ok) throw new Error(`${answer.status}: ${await answer.text()}`);
  return (await answer.json()) as T;
}

const body: Send["requestBody"]["content"]["application/json"] = {
  from: "bot@example.com",
  to: "ada@example.com",
  subject: "Generated types",
  text: "It is on its way.",
  metadata: { order: 4821 },
};
const receipt = await call<Receipt>("POST", "/v1/emails", body, "generated-typescript");
const email = await call<Detail>("GET", `/v1/emails/${receipt.id}`);
const left: Detail["state"][] = ["queued", "sending", "sent", "delivered"];
if (!left.includes(email.state) || email.subject !== body.subject) throw new Error(JSON.stringify(email));
const query: ListQuery = { limit: 1, to: "ada@example.com" };
const page = await call<List["responses"][200]["content"]["application/json"]>("GET", `/v1/emails?limit=${query.limit}&to=${query.to}`);
if (page.data.length !== 1) throw new Error(JSON.stringify(page));
// Objects that may have any members have types that allow them.
type Posted = webhooks["email.sent"]["post"]["requestBody"]["content"]["application/json"];
const posted: Posted["data"] = { state: "sent" };
const metadata: Detail["metadata"] = { order: 4821 };
if (email.metadata["order"] !== metadata["order"] || posted["state"] !== "sent") throw new Error(JSON.stringify(email));
// @ts-expect-error: a state that does not exist
const wrong: Detail["state"] = "sendt";
// @ts-expect-error: a page size is a number
const text: ListQuery["limit"] = "1";
console.log(receipt.id, email.state, wrong === undefined || text === undefined ? "" : "");
