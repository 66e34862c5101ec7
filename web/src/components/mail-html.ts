// Makes the HTML of a mail safe to show. It reads tags and attributes by itself and writes a new document that has only
// known ones, so that the result is safe whatever the input was. The browser's own parser is not used on the input:
// it reports each style attribute and event handler as a violation of the page's policy.
//
// No text is lost that a reader of the mail may see. Where readers differ, the text is shown.
import { isReadable } from "./mail-colors";
import { readOther, readRaw, readTag, type Part, type Tag } from "./mail-tokens";

const SHOWN = new Set(
  ("a abbr address article aside b bdi bdo big blockquote br caption center cite code col colgroup dd del dfn div dl dt em figcaption figure font footer " +
    "h1 h2 h3 h4 h5 h6 header hr i ins kbd li main mark nav ol p pre q s samp section small span strike strong sub sup table tbody td tfoot th thead tr tt u ul var wbr").split(" "),
);
const VOID = new Set(["br", "hr", "wbr", "col"]);
/** Their content is text for the parser, and no reader sees it. */
const UNSEEN = new Set("script style title iframe noembed noframes template".split(" "));
/** Mails are full of them, so only one without an end is worth a note. */
const USUAL = new Set(["script", "style", "title"]);
/** Their content is text for the parser, and readers see it. */
const LITERAL = new Set(["textarea", "xmp", "plaintext"]);
/** After these, the parser takes the content of `UNSEEN` elements as HTML, depending on where they are. */
const UNUSUAL = new Set(["svg", "math", "select"]);
const ATTRIBUTES = new Set("align alt border cellpadding cellspacing colspan dir face height lang rowspan size start title valign width".split(" "));
const COLORS = new Set(["bgcolor", "color"]);
const MAX_DEPTH = 120;
const MAX_TAGS = 20_000;
const MAX_VALUE = 300;

const names = (text: string) => new Set(text.split(" "));
const BLOCKS = "address article aside blockquote center div dl figcaption figure footer h1 h2 h3 h4 h5 h6 header hr main nav ol p pre section table ul";
/** What the start of an element ends, and the elements that it cannot end from inside. Authors may leave out these end tags. */
const ENDS = new Map<string, { ended: Set<string>; inside: Set<string> }>([
  ...BLOCKS.split(" ").map((block) => [block, { ended: names("p"), inside: names("table td th caption") }] as const),
  ["a", { ended: names("a"), inside: names("table td th caption") }],
  ["li", { ended: names("li"), inside: names("ul ol table td th caption") }],
  ...["dt", "dd"].map((item) => [item, { ended: names("dt dd"), inside: names("dl table td th caption") }] as const),
  ...["td", "th"].map((cell) => [cell, { ended: names("td th"), inside: names("table") }] as const),
  ["tr", { ended: names("tr"), inside: names("table") }],
  ...["thead", "tbody", "tfoot"].map((group) => [group, { ended: names("thead tbody tfoot"), inside: names("table") }] as const),
]);

/** Entities stay as they are: they mean the same in the new document. */
const escapeText = (text: string) => text.replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
const escapeRaw = (text: string) => escapeText(text.replaceAll("&", "&amp;"));

const HIDDEN = '<span class="left-out hidden">';

/** Writes the new document. */
class Writer {
  readonly out: string[] = [];
  /** The elements that are open, as far as the browser's rules for missing end tags are followed. */
  private open: string[] = [];
  /** Start tags that were too deep to be written. Their end tags are left out, too. */
  private flattened = new Map<string, number>();
  private tags = 0;
  private link: { href: string; text: string; depth: number } | null = null;

  get full(): boolean {
    return this.tags >= MAX_TAGS;
  }

  text(text: string): void {
    this.out.push(escapeText(text));
    if (this.link) this.link.text += text;
  }

  tag({ name, closing, attributes }: Tag): void {
    this.tags += 1;
    if (closing) this.end(name);
    else if (name === "img" || name === "image") this.image(attributes);
    else if (name === "iframe") this.frame(attributes);
    else if (name === "input" && attributes.get("type")?.toLowerCase() !== "hidden") this.values("field", attributes, ["value", "placeholder", "alt"]);
    else if (name === "option" || name === "optgroup") this.values("field", attributes, ["label"]);
    else if (SHOWN.has(name)) this.begin(name, attributes);
  }

  /** The content of a `textarea`, where entities have a meaning, or of an element where they have none. */
  literal(name: string, content: string): void {
    if (name === "textarea") this.values("field", new Map([[name, content]]), [name]);
    else this.out.push(`<pre>${escapeRaw(content)}</pre>`);
  }

  /** Says what is in a part that no reader sees, unless that is usual. */
  unseen(where: string, { content, open }: Part, isUsual = false): void {
    if ((isUsual && !open) || !content.trim()) return;
    this.out.push(` ${HIDDEN}[hidden in ${escapeText(where)}${open ? " without an end" : ""}: ${escapeRaw(content)}]</span> `);
  }

  finish(isComplete: boolean): string {
    this.linkTarget();
    return this.out.join("") + (isComplete ? "" : `<p>${HIDDEN}[The rest of this mail is too long to show.]</span></p>`);
  }

  private begin(name: string, attributes: Map<string, string>): void {
    const rule = ENDS.get(name);
    if (rule) this.endImplied(rule.ended, rule.inside);
    if (name === "a") {
      this.linkTarget();
      this.link = { href: attributes.get("href")?.trim() ?? "", text: "", depth: this.open.length };
    }
    // Deeper elements are flattened, because each level costs the browser time.
    if (!VOID.has(name) && this.open.length >= MAX_DEPTH) {
      this.flattened.set(name, (this.flattened.get(name) ?? 0) + 1);
      return;
    }
    if (!VOID.has(name)) this.open.push(name);
    this.out.push(`<${name}${this.attributes(attributes)}>`);
  }

  private end(name: string): void {
    if (!SHOWN.has(name) || VOID.has(name)) return;
    const flattened = this.flattened.get(name) ?? 0;
    if (flattened > 0) this.flattened.set(name, flattened - 1);
    else {
      this.shorten(this.open.lastIndexOf(name));
      this.out.push(`</${name}>`);
    }
    if (name === "a") this.linkTarget();
  }

  private endImplied(ended: Set<string>, inside: Set<string>): void {
    for (let index = this.open.length - 1; index >= 0 && !inside.has(this.open[index] ?? ""); index -= 1) {
      if (ended.has(this.open[index] ?? "")) {
        this.shorten(index);
        return;
      }
    }
  }

  /** Leaves `length` elements open. A link whose surroundings end is over. */
  private shorten(length: number): void {
    if (length < 0) return;
    this.open.length = length;
    if (this.link && length < this.link.depth) this.linkTarget();
  }

  private attributes(attributes: Map<string, string>): string {
    const isKept = (name: string, value: string) => (COLORS.has(name) ? isReadable(name, value) : ATTRIBUTES.has(name) && value.length <= MAX_VALUE);
    const kept = [...attributes].filter(([name, value]) => isKept(name, value));
    return kept.map(([name, value]) => ` ${name}="${escapeText(value)}"`).join("");
  }

  /** `words` are escaped. */
  private note(words: string): void {
    this.out.push(`<span class="left-out">[${words}]</span>`);
  }

  private notLoaded(words: string, source = ""): void {
    this.note(`${escapeText(words)}${source ? ` · not loaded: ${escapeText(source.slice(0, MAX_VALUE))}` : ""}`);
  }

  /** Words that are not in the text, and that readers of form fields and frames see. */
  private values(what: string, attributes: Map<string, string>, shown: string[]): void {
    for (const value of shown.map((name) => attributes.get(name) ?? "")) if (value.trim()) this.note(`${what}: ${escapeText(value)}`);
  }

  private frame(attributes: Map<string, string>): void {
    this.notLoaded("frame", attributes.get("src"));
    this.values("frame", attributes, ["srcdoc"]);
  }

  /** Images inside the mail are shown. Others are not loaded, and a note says where they are. */
  private image(attributes: Map<string, string>): void {
    const source = attributes.get("src") ?? "";
    if (/^data:image\/(png|gif|jpeg|webp);base64,[A-Za-z0-9+/=\s]*$/i.test(source)) this.out.push(`<img src="${source}"${this.attributes(attributes)}>`);
    else this.notLoaded(attributes.get("alt") || "image", source);
  }

  /** Says where a link leads, unless its words are the address. */
  private linkTarget(): void {
    const link = this.link;
    this.link = null;
    if (!link?.href || link.href.startsWith("#") || link.text.trim() === link.href) return;
    this.out.push(` <span class="left-out">[${escapeText(link.href.slice(0, MAX_VALUE))}]</span>`);
  }
}

/** Reads a mail tag by tag, and gives what it reads to a writer. */
class Reader {
  private readonly writer = new Writer();
  private position = 0;
  /** Nothing that could be seen is skipped any more. */
  private isUnusual = false;

  constructor(private readonly html: string) {}

  read(): string {
    const { html, writer } = this;
    while (this.position < html.length && !writer.full) {
      const open = html.indexOf("<", this.position);
      writer.text(html.slice(this.position, open < 0 ? html.length : open));
      if (open < 0) break;
      this.position = this.markup(open);
    }
    return writer.finish(!writer.full);
  }

  /** Reads what begins with the `<` at `open`, and returns where it ends. */
  private markup(open: number): number {
    const { html, writer } = this;
    const closing = html[open + 1] === "/";
    const nameAt = open + (closing ? 2 : 1);
    if (/[a-z]/i.test(html[nameAt] ?? "")) {
      const tag = readTag(html, nameAt, closing);
      if (tag) return this.element(tag);
      writer.unseen("a tag", { content: html.slice(nameAt), end: html.length, open: true });
      return html.length;
    }
    if (this.isUnusual && html.startsWith("<![CDATA[", open)) return open + "<![CDATA[".length;
    if (!closing && html[open + 1] !== "!" && html[open + 1] !== "?") {
      writer.text("<");
      return open + 1;
    }
    const part = readOther(html, open);
    writer.unseen("a comment", part, true);
    return part.end;
  }

  private element(tag: Tag): number {
    const { html, writer } = this;
    const { name, closing, end } = tag;
    writer.tag(tag);
    if (UNUSUAL.has(name)) this.isUnusual = true;
    const isUnseen = UNSEEN.has(name) && !this.isUnusual;
    if (closing || !(isUnseen || LITERAL.has(name))) return end;
    const part = name === "plaintext" ? { content: html.slice(end), end: html.length, open: true } : readRaw(html, tag);
    if (isUnseen) writer.unseen(`<${name}>`, part, USUAL.has(name));
    else writer.literal(name, part.content);
    return part.end;
  }
}

const POLICY = "default-src 'none'; img-src data:; style-src 'self'; form-action 'none'; base-uri 'none'";

/** A mail with colors of its own is written for white paper. */
const HAS_COLORS = /<[^>]* (?:bgcolor|color)="/;

/** The beginning of a document on dark paper. */
const DARK = '<!doctype html><html class="dark">';

/** A complete document for `srcdoc`. With `dark`, a mail that sets no colors is on dark paper. */
export function safeMailDocument(html: string, dark = false): string {
  const body = new Reader(html).read();
  return `${dark && !HAS_COLORS.test(body) ? DARK : "<!doctype html><html>"}<head><meta charset="utf-8">` +
    `<meta http-equiv="Content-Security-Policy" content="${POLICY}"><link rel="stylesheet" href="/assets/mail.css"></head><body>${body}</body></html>`;
}

/** Whether a document has text that readers of the mail do not see. */
export const hasHidden = (document: string): boolean => document.includes(HIDDEN);

export const isDarkDocument = (document: string): boolean => document.startsWith(DARK);

/** What is in the body of a document that `safeMailDocument` made. */
export const bodyOf = (document: string): string => document.slice(document.indexOf("<body>") + "<body>".length, -"</body></html>".length);
