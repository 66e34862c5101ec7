// One call of the API as text for curl, TypeScript, Python and MCP, ready to be copied. Keys are read from the environment.

export interface ApiCall {
  method: "GET" | "POST" | "PATCH" | "DELETE";
  path: string;
  body?: Record<string, unknown>;
  /** The idempotency key of the call. */
  key?: string;
  /** The function of both SDKs, such as `emails.get`, and the id that comes first. Without it `request` is called. */
  sdk?: { name: string; id?: string };
  /** The tool that does the same, if there is one. */
  tool?: { name: string; arguments: Record<string, unknown> };
}

export type Language = "curl" | "TypeScript" | "Python" | "MCP";
export const LANGUAGES: Language[] = ["curl", "TypeScript", "Python", "MCP"];

const shellQuote = (text: string) => `'${text.replaceAll("'", "'\\''")}'`;

/** Paths consist of ids and percent-encoded names, which need no quotes but those of the variable. */
const shellUrl = (path: string) => (/^[\w/.%?=&@+-]*$/.test(path) ? `"$MAILONCE_URL${path}"` : `"$MAILONCE_URL"${shellQuote(path)}`);

function asCurl({ method, path, body, key }: ApiCall): string {
  const lines = [`curl ${method === "GET" ? "" : `-X ${method} `}${shellUrl(path)}`, `-H "Authorization: Bearer $MAILONCE_API_KEY"`];
  if (key) lines.push(`-H ${shellQuote(`Idempotency-Key: ${key}`)}`);
  if (body) lines.push(`-H 'Content-Type: application/json'`, `-d ${shellQuote(JSON.stringify(body))}`);
  return lines.join(" \\\n  ");
}

const isPlainName = (name: string) => /^[A-Za-z_]\w*$/.test(name);

/** JSON with plain names unquoted, as people write objects in TypeScript. */
function tsLiteral(value: unknown, indent = ""): string {
  if (Array.isArray(value)) return `[${value.map((item) => tsLiteral(item, indent)).join(", ")}]`;
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const inner = `${indent}  `;
  const members = Object.entries(value).map(([name, member]) => `${inner}${isPlainName(name) ? name : JSON.stringify(name)}: ${tsLiteral(member, inner)},\n`);
  return members.length > 0 ? `{\n${members.join("")}${indent}}` : "{}";
}

function asTypeScript({ method, path, body, key, sdk }: ApiCall): string {
  const options = key ? `{ idempotencyKey: ${JSON.stringify(key)} }` : "";
  const given = sdk ? [sdk.id && JSON.stringify(sdk.id), body && tsLiteral(body), options] : [JSON.stringify(method), JSON.stringify(path), body && tsLiteral(body), options];
  return `import { Mailonce } from "mailonce";\nconst mo = new Mailonce();\nawait mo.${sdk?.name ?? "request"}(${given.filter(Boolean).join(", ")});`;
}

const PYTHON_NAMES: Record<string, string> = { from: "from_", for: "for_", as: "as_" };

function pyLiteral(value: unknown): string {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(pyLiteral).join(", ")}]`;
  if (typeof value !== "object") return JSON.stringify(value);
  return `{${Object.entries(value).map(([name, member]) => `${JSON.stringify(name)}: ${pyLiteral(member)}`).join(", ")}}`;
}

const pyArgument = (name: string, value: unknown) =>
  name === "intent" ? `intent=Intent(${Object.entries(value as object).map(([part, member]) => `${part}=${pyLiteral(member)}`).join(", ")})` : `${PYTHON_NAMES[name] ?? name}=${pyLiteral(value)}`;

function asPython({ method, path, body, key, sdk }: ApiCall): string {
  const imports = sdk && body && "intent" in body ? "Intent, Mailonce" : "Mailonce";
  const start = `from mailonce import ${imports}\nmo = Mailonce()\n`;
  if (!sdk) {
    const given = [JSON.stringify(method), JSON.stringify(path), body && pyLiteral(body), key && `options={"idempotency_key": ${JSON.stringify(key)}}`];
    return `${start}mo.request(${given.filter(Boolean).join(", ")})`;
  }
  const named = Object.entries(body ?? {}).map(([name, value]) => pyArgument(name, value));
  const withKey = key ? [sdk.name === "emails.send" ? `idempotency_key=${JSON.stringify(key)}` : `options={"idempotency_key": ${JSON.stringify(key)}}`] : [];
  const given = [...(sdk.id ? [JSON.stringify(sdk.id)] : []), ...named, ...withKey];
  return `${start}mo.${sdk.name}(${given.length > 2 ? `\n    ${given.join(",\n    ")},\n` : given.join(", ")})`;
}

/** Null when no tool does what the call does. */
const asMcp = ({ tool }: ApiCall): string | null =>
  tool ? JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: tool.name, arguments: tool.arguments } }, null, 2) : null;

export function snippet(call: ApiCall, language: Language): string | null {
  return { curl: asCurl, TypeScript: asTypeScript, Python: asPython, MCP: asMcp }[language](call);
}
