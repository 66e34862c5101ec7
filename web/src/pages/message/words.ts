// What the verdicts and flags of a message mean, in words.
import type { Schema } from "../../api/types";
import type { Tone } from "../../components/StateChip";

export type Rendered = Schema["RenderedMessageBody"];

export const AUTH_TONES: Record<string, Tone> = { pass: "good", fail: "bad", softfail: "wait", temperror: "wait", permerror: "wait", neutral: "plain", none: "plain" };

export const AUTH_WORDS: Record<Rendered["auth"]["verdict"], string> = {
  pass: "The domain in From confirms this sender.",
  fail: "The sender can be forged: the domain in From disowns this mail, or programs would show different senders.",
  none: "Nothing confirms the sender, and the domain in From does not ask for it.",
  temperror: "The sender's domain did not answer in time.",
};

export const FLAG_WORDS: Record<Rendered["flags"][number], string> = {
  message_id_reused: "Another message has the same Message-ID and says something else.",
  no_message_id: "The mail has no Message-ID.",
  unreadable: "Parts of the mail could not be read.",
  cut: "The mail was too complex or malformed to be processed completely.",
  ambiguous: "It contains several possible codes. None of them is given out.",
  duplicate_header: "A header field that may occur once occurs twice.",
};

export const INJECTION_WORDS: Record<string, string> = {
  instruction: "text that gives a model instructions",
  hidden_instruction: "hidden text that gives a model instructions",
  aria_hidden: "visible text that is hidden from screen readers",
};

export const LINK_TONES: Record<Schema["LinkBody"]["verdict"], Tone> = { allowed: "good", suspicious: "wait", blocked: "bad" };

export const REPLY_WORDS: Record<Rendered["reply_target"]["flags"][number], string> = {
  other_domain: "Replies go to another organization than the sender's.",
  auth_failed: "The domain of the sender disowns this mail.",
};

export const REMOVED_WORDS: Record<string, string> = {
  hidden_chars: "hidden characters", invisible_chars: "invisible characters", bidi_chars: "direction-turning characters", tracking_pixels: "tracking pixels",
  comments: "comments", quoted_lines: "quoted lines", signature_lines: "signature lines", truncated_chars: "characters beyond the limit",
};

export const spaced = (name: string): string => name.replaceAll("_", " ");
export const party = ({ name, address }: Schema["PartyBody"]): string => (name ? `${name} <${address}>` : address);
