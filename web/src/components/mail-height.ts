// Estimates how high the HTML of a mail is when it is shown. The frame of a mail has no origin, so the page cannot measure
// it. The estimate errs on the high side: too high leaves an empty line or two, and too low makes the frame scroll.

/** Of mail.css. */
const LINE_PX = 22.5;
const MARGIN_PX = 15;
const BODY_MARGIN_PX = 14;
const CHARACTER_PX = 8.4;
/** An image in the mail without a height. */
const IMAGE_PX = 160;

/** Elements that begin on a new line, with their font size and the margins above and below in lines. */
const BLOCKS: Record<string, { size?: number; margin?: number }> = {
  h1: { size: 2, margin: 1.35 }, h2: { size: 1.5, margin: 1.3 }, h3: { size: 1.2, margin: 1.2 }, h4: { margin: 1.35 }, h5: { margin: 1.35 }, h6: { margin: 1.35 },
  p: { margin: 1 }, ul: { margin: 1 }, ol: { margin: 1 }, dl: { margin: 1 }, blockquote: { margin: 1 }, pre: { margin: 1 }, figure: { margin: 1 }, hr: { margin: 1 },
  li: {}, dt: {}, dd: {}, div: {}, table: {}, tr: {}, caption: {}, section: {}, article: {}, header: {}, footer: {}, main: {}, aside: {}, nav: {}, address: {}, center: {}, figcaption: {},
};
const TOKEN = /<(\/?)([a-z0-9]+)([^>]*)>|[^<]+/g;

class Sheet {
  private height = 0;
  private width = 0;
  private size = 1;
  /** Margins of neighbours collapse into the larger one. */
  private margin = BODY_MARGIN_PX;

  constructor(private readonly line: number) {}

  text(text: string): void {
    const shown = text.replace(/\s+/g, " ");
    if (shown.trim()) this.width += shown.length * CHARACTER_PX * this.size;
  }

  endLine(): void {
    if (this.width > 0) this.add(Math.ceil(this.width / this.line) * LINE_PX * this.size);
    this.width = 0;
  }

  lineBreak(): void {
    if (this.width > 0) this.endLine();
    else this.add(LINE_PX);
  }

  add(px: number): void {
    this.height += this.margin + px;
    this.margin = 0;
  }

  block({ size = 1, margin = 0 }: { size?: number; margin?: number }, closing: boolean): void {
    this.endLine();
    this.size = closing ? 1 : size;
    this.margin = Math.max(this.margin, margin * MARGIN_PX);
  }

  end(): number {
    this.endLine();
    return this.height + Math.max(this.margin, BODY_MARGIN_PX);
  }
}

/** The height in pixels of a body that `safeMailDocument` wrote, in a frame of this width. */
export function mailHeight(body: string, frameWidth: number): number {
  const sheet = new Sheet(Math.max(120, frameWidth - 34));
  for (const [token, slash, name, attributes = ""] of body.matchAll(TOKEN)) {
    if (name === undefined) sheet.text(token);
    else if (name === "br") sheet.lineBreak();
    else if (name === "img") sheet.add(Number(/ height="(\d+)/.exec(attributes)?.[1] ?? IMAGE_PX));
    else if (BLOCKS[name]) sheet.block(BLOCKS[name], slash === "/");
  }
  return sheet.end();
}
