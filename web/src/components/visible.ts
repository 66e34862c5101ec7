// Characters that hide or reorder text are shown as their code, so that people read what is really there.

/** Controls and format characters, except line breaks, tabs and the joiners of emoji and scripts. Also invisible letters. */
const INVISIBLE = /(?![\n\r\t\u200c\u200d])[\p{Cc}\p{Cf}\u034f\u115f\u1160\u3164\uffa0]/gu;

export const visible = (text: string): string =>
  text.replace(INVISIBLE, (character) => `[U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}]`);

/** The subject of an email, message or thread. Strangers write subjects. */
export const subjectOf = ({ subject }: { subject: string }): string => visible(subject) || "(no subject)";
