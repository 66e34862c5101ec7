// Rules in words, and what their forms offer.
import type { Schema } from "../../api/types";

export type Rule = Schema["RuleBody"];
export type Condition = Schema["ConditionBody"];
export type Direction = Rule["direction"];
export type ActionType = Rule["actions"][number]["type"];

const BOTH: [string, string][] = [
  ["from.address", "Sender address"], ["from.domain", "Sender domain"], ["recipient.address", "Recipient address"], ["recipient.domain", "Recipient domain"], ["subject", "Subject"],
];
export const FIELDS: Record<Direction, [string, string][]> = {
  inbound: [...BOTH, ["auth.dmarc", "DMARC result"]],
  outbound: [...BOTH, ["recipient.is_new", "A recipient is new"], ["recipient.is_outside", "A recipient is outside"], ["has_attachments", "It has attachments"], ["is_first", "It is the first email"]],
};
const BOOLEAN = new Set(["recipient.is_new", "recipient.is_outside", "has_attachments", "is_first"]);
export const isBoolean = (field: string): boolean => BOOLEAN.has(field);

export const OPERATORS: [Condition["operator"], string][] = [["is", "is"], ["is_not", "is not"], ["contains", "contains"], ["in_list", "is one of"]];

export const ACTIONS: Record<Direction, [ActionType, string][]> = {
  inbound: [["block", "Refuse it"], ["folder", "Put it in a folder"], ["label", "Label it"], ["mark_read", "Mark it as read"], ["skip_agent", "Do not give it to agents"]],
  outbound: [["approve", "Hold it until a person approves"], ["approve_new_recipients", "Hold it if a recipient is new"], ["block", "Refuse it"]],
};

const fieldName = (field: string) => [...FIELDS.inbound, ...FIELDS.outbound].find(([name]) => name === field)?.[1] ?? field;
const operatorName = (operator: string) => OPERATORS.find(([name]) => name === operator)?.[1] ?? operator;

/** Names begin with a capital in forms, but not inside a sentence. */
const inSentence = (words: string) => (/^[A-Z][a-z ]/.test(words) ? words.charAt(0).toLowerCase() + words.slice(1) : words);

export function conditionWords({ field, operator, value }: Condition): string {
  const name = inSentence(fieldName(field));
  if (isBoolean(field)) return String(value) === "true" ? name : `not: ${name}`;
  const values = (Array.isArray(value) ? value : [value]).map((part) => `“${part}”`).join(", ");
  return `${name} ${operatorName(operator)} ${values}`;
}

export function actionWords({ type, value }: Rule["actions"][number]): string {
  const name = [...ACTIONS.inbound, ...ACTIONS.outbound].find(([other]) => other === type)?.[1] ?? type;
  return inSentence(value ? `${name}: ${value}` : name);
}
