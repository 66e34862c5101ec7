// Reads the tags and comments of a mail as browsers do, so that a mail cannot hide in `mail-html` what its reader sees.
//
// Time is linear in the length of the input: every search that fails ends the work.

export interface Tag {
  name: string;
  closing: boolean;
  attributes: Map<string, string>;
  /** Where the text after the tag begins. */
  end: number;
}

// White space is that of HTML. Others, such as a no-break space, are part of a name.
const SPACE = /[\t\n\f\r /]*/y;
const TAG_NAME = /[^\t\n\f\r />]+/y;
const NAME = /[^\t\n\f\r />=]+|=[^\t\n\f\r />=]*/y;
const EQUALS = /[\t\n\f\r ]*=[\t\n\f\r ]*/y;
const UNQUOTED = /[^\t\n\f\r >]*/y;

function take(pattern: RegExp, html: string, at: number): string {
  pattern.lastIndex = at;
  return pattern.exec(html)?.[0] ?? "";
}

/** Reads the value at `at`. Returns null when the document ends inside of it. */
function readValue(html: string, at: number): { value: string; end: number } | null {
  const quote = html[at];
  if (quote !== '"' && quote !== "'") {
    const value = take(UNQUOTED, html, at);
    return { value, end: at + value.length };
  }
  const close = html.indexOf(quote, at + 1);
  return close < 0 ? null : { value: html.slice(at + 1, close), end: close + 1 };
}

/** Reads the tag whose name begins at `at`. Returns null when the document ends inside of it. */
export function readTag(html: string, at: number, closing: boolean): Tag | null {
  const name = take(TAG_NAME, html, at);
  const attributes = new Map<string, string>();
  let position = at + name.length;
  for (;;) {
    position += take(SPACE, html, position).length;
    if (position >= html.length) return null;
    if (html[position] === ">") return { name: name.toLowerCase(), closing, attributes, end: position + 1 };
    const attribute = take(NAME, html, position);
    position += attribute.length;
    const equals = take(EQUALS, html, position);
    if (!equals) continue;
    const read = readValue(html, position + equals.length);
    if (!read) return null;
    position = read.end;
    if (!attributes.has(attribute.toLowerCase())) attributes.set(attribute.toLowerCase(), read.value);
  }
}

/** A part of the input that is not shown as text. `open` means that only the end of the document ended it. */
export interface Part {
  content: string;
  end: number;
  open: boolean;
}

/** Reads to the first match of `pattern`, a global one, from `at` on. */
function readTo(pattern: RegExp, html: string, from: number, at: number): Part {
  pattern.lastIndex = at;
  const found = pattern.exec(html);
  const content = html.slice(from, found?.index ?? html.length);
  return { content, end: found ? found.index + found[0].length : html.length, open: !found };
}

const COMMENT_END = /--!?>/g;

/** Reads the comment at `at`. `<!-->` and `<!--->` are complete comments, and `--!>` ends one, too. */
function readComment(html: string, at: number): Part {
  const first = readTo(COMMENT_END, html, at + 4, at + 2);
  const isTooEarly = !first.open && html[first.end - 2] === "!" && first.end < at + 8;
  return isTooEarly ? readTo(COMMENT_END, html, at + 4, at + 4) : first;
}

/** Reads a comment, a declaration or a strange end tag. */
export const readOther = (html: string, at: number): Part =>
  html.startsWith("<!--", at) ? readComment(html, at) : readTo(/>/g, html, at + 2, at + 1);

/** Reads the content of an element that the parser takes as text, up to its end tag. */
export function readRaw(html: string, { name, end }: Tag): Part {
  const part = readTo(new RegExp(`</${name}(?=[\\t\\n\\f\\r />])`, "gi"), html, end, end);
  return { ...part, end: end + part.content.length };
}
