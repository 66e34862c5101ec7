// Makes the HTML of a mail safe to show. It reads tags and attributes by itself and writes a new document that has only
// known ones, so that the result is safe whatever the input was. The browser's own parser is not used on the input:
// it reports each style attribute and event handler as a violation of the page's policy.
//
// Time is linear in the length of the input: every search that fails ends the work.

const SHOWN = new Set(
  ("a abbr address article aside b bdi bdo big blockquote br caption center cite code col colgroup dd del dfn div dl dt em figcaption figure font footer " +
    "h1 h2 h3 h4 h5 h6 header hr i ins kbd li main mark nav ol p pre q s samp section small span strike strong sub sup table tbody td tfoot th thead tr tt u ul var wbr").split(" "),
);
const VOID = new Set(["br", "hr", "wbr", "col"]);
/** Their content is text for the parser, and nothing that a reader sees. */
const SKIPPED = new Set("script style title textarea xmp iframe noembed noframes template svg math object applet audio video select".split(" "));
const ATTRIBUTES = new Set("align alt bgcolor border cellpadding cellspacing color colspan dir face height lang rowspan size start title valign width".split(" "));
const MAX_DEPTH = 120;
const MAX_TAGS = 20_000;
const MAX_VALUE = 300;

/** Entities stay as they are: they mean the same in the new document. */
const escapeText = (text: string) => text.replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");

interface Tag {
  name: string;
  closing: boolean;
  attributes: Map<string, string>;
  /** Where the text after the tag begins. */
  end: number;
}

const SPACE = /[\s/]*/y;
const NAME = /[^\s/>=]+|=[^\s/>=]*/y;
const EQUALS = /\s*=\s*/y;
const UNQUOTED = /[^\s>]*/y;

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
function readTag(html: string, at: number, closing: boolean): Tag | null {
  const name = take(/[^\s/>]+/y, html, at);
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

/** Writes the new document. */
class Writer {
  readonly out: string[] = [];
  private depth = 0;
  private tags = 0;
  private link: { href: string; text: string } | null = null;

  get full(): boolean {
    return this.tags >= MAX_TAGS;
  }

  text(text: string): void {
    this.out.push(escapeText(text));
    if (this.link) this.link.text += text;
  }

  tag({ name, closing, attributes }: Tag): void {
    this.tags += 1;
    if (name === "img" && !closing) this.image(attributes);
    else if (!SHOWN.has(name)) return;
    else if (closing) this.close(name);
    else this.open(name, attributes);
  }

  private open(name: string, attributes: Map<string, string>): void {
    if (name === "a") this.link = { href: attributes.get("href")?.trim() ?? "", text: "" };
    // Deeper elements are flattened, because each level costs the browser time.
    if (!VOID.has(name) && ++this.depth > MAX_DEPTH) return;
    this.out.push(`<${name}${this.attributes(attributes)}>`);
  }

  private close(name: string): void {
    if (VOID.has(name)) return;
    this.depth = Math.max(0, this.depth - 1);
    if (this.depth >= MAX_DEPTH) return;
    this.out.push(`</${name}>`);
    if (name === "a") this.linkTarget();
  }

  private attributes(attributes: Map<string, string>): string {
    const kept = [...attributes].filter(([name, value]) => ATTRIBUTES.has(name) && value.length <= MAX_VALUE);
    return kept.map(([name, value]) => ` ${name}="${escapeText(value)}"`).join("");
  }

  /** Images inside the mail are shown. Others are not loaded, and a note says where they are. */
  private image(attributes: Map<string, string>): void {
    const source = attributes.get("src") ?? "";
    if (/^data:image\/(png|gif|jpeg|webp);base64,[A-Za-z0-9+/=\s]*$/i.test(source)) {
      this.out.push(`<img src="${source}"${this.attributes(attributes)}>`);
      return;
    }
    const words = attributes.get("alt") || "image";
    this.out.push(`<span class="left-out">[${escapeText(words.slice(0, MAX_VALUE))}${source ? ` · not loaded: ${escapeText(source.slice(0, MAX_VALUE))}` : ""}]</span>`);
  }

  /** Says where a link leads, unless its words are the address. */
  private linkTarget(): void {
    const link = this.link;
    this.link = null;
    if (!link?.href || link.href.startsWith("#") || link.text.trim() === link.href) return;
    this.out.push(` <span class="left-out">[${escapeText(link.href.slice(0, MAX_VALUE))}]</span>`);
  }
}

/** Where a comment, a declaration or a strange end tag at `at` ends. */
function endOfOther(html: string, at: number): number {
  const mark = html.startsWith("<!--", at) ? "-->" : ">";
  const end = html.indexOf(mark, at + (mark === ">" ? 1 : 2));
  return end < 0 ? html.length : end + mark.length;
}

function endOfSkipped(html: string, { name, end }: Tag): number {
  const close = new RegExp(`</${name}(?=[\\s/>])`, "gi");
  close.lastIndex = end;
  return close.exec(html)?.index ?? html.length;
}

function rewrite(html: string): string {
  const writer = new Writer();
  let position = 0;
  while (position < html.length && !writer.full) {
    const open = html.indexOf("<", position);
    writer.text(html.slice(position, open < 0 ? html.length : open));
    if (open < 0) break;
    const closing = html[open + 1] === "/";
    const nameAt = open + (closing ? 2 : 1);
    if (/[a-z]/i.test(html[nameAt] ?? "")) {
      const tag = readTag(html, nameAt, closing);
      if (!tag) break;
      writer.tag(tag);
      position = SKIPPED.has(tag.name) && !closing ? endOfSkipped(html, tag) : tag.end;
    } else if (closing || html[open + 1] === "!" || html[open + 1] === "?") position = endOfOther(html, open);
    else {
      writer.text("<");
      position = open + 1;
    }
  }
  const rest = writer.full ? '<p class="left-out">[The rest of this mail is too long to show.]</p>' : "";
  return writer.out.join("") + rest;
}

const POLICY = "default-src 'none'; img-src data:; style-src 'self'; form-action 'none'; base-uri 'none'";

/** A mail with colors of its own is written for white paper. */
const HAS_COLORS = /<[^>]* (?:bgcolor|color)="/;

/** The beginning of a document on dark paper. */
const DARK = '<!doctype html><html class="dark">';

/** A complete document for `srcdoc`. With `dark`, a mail that sets no colors is on dark paper. */
export function safeMailDocument(html: string, dark = false): string {
  const body = rewrite(html);
  return `${dark && !HAS_COLORS.test(body) ? DARK : "<!doctype html><html>"}<head><meta charset="utf-8">` +
    `<meta http-equiv="Content-Security-Policy" content="${POLICY}"><link rel="stylesheet" href="/assets/mail.css"></head><body>${body}</body></html>`;
}

export const isDarkDocument = (document: string): boolean => document.startsWith(DARK);

/** What is in the body of a document that `safeMailDocument` made. */
export const bodyOf = (document: string): string => document.slice(document.indexOf("<body>") + "<body>".length, -"</body></html>".length);
