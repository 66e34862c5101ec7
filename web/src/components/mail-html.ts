// Makes the HTML of a mail safe to show. The frame is sandboxed and the page's policy blocks everything anyway; this
// also removes what would be blocked, so that a mail causes no violation reports, and shows where links lead.

const ALLOWED = new Set(
  ("a abbr address article aside b bdi bdo big blockquote br caption center cite code col colgroup dd del details dfn div dl dt em figcaption figure font footer " +
    "h1 h2 h3 h4 h5 h6 header hr i img ins kbd li main mark nav ol p pre q s samp section small span strike strong sub summary sup table tbody td tfoot th thead time tr tt u ul var wbr").split(" "),
);
/** Their text is not for readers. */
const DROPPED = new Set("script style template noscript head title iframe frame frameset object embed applet svg math audio video canvas textarea select option button input link meta base".split(" "));
const ATTRIBUTES = new Set("align alt bgcolor border cellpadding cellspacing color colspan dir face height lang rowspan size start title valign width".split(" "));
const MAX_DEPTH = 120;
const MAX_NODES = 20_000;

const escapeText = (text: string) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");

function attributes(element: Element): string {
  const kept = [...element.attributes].filter(({ name, value }) => ATTRIBUTES.has(name) && value.length < 500);
  return kept.map(({ name, value }) => ` ${name}="${escapeText(value)}"`).join("");
}

/** Images inside the mail are shown; those from elsewhere are not fetched, and a note says where they are. */
function image(element: Element): string {
  const source = element.getAttribute("src") ?? "";
  if (/^data:image\/(png|gif|jpeg|webp);base64,[A-Za-z0-9+/=\s]*$/i.test(source)) return `<img src="${escapeText(source)}"${attributes(element)}>`;
  const words = element.getAttribute("alt") || "image";
  return `<span class="left-out">[${escapeText(words)}${source ? ` · not loaded: ${escapeText(source.slice(0, 120))}` : ""}]</span>`;
}

/** Text after a link that says where it leads, unless its words are the address. */
function target(element: Element): string {
  const href = (element.getAttribute("href") ?? "").trim();
  if (!href || href.startsWith("#") || (element.textContent ?? "").trim() === href) return "";
  return ` <span class="left-out">[${escapeText(href.slice(0, 300))}]</span>`;
}

interface Step {
  node: Node;
  depth: number;
  /** Set for the second visit, which closes the element. */
  close?: string;
}

/** Walks without recursion, because mails can nest elements deeper than the stack allows. */
function serialize(root: Node): string {
  const out: string[] = [];
  const stack: Step[] = [...root.childNodes].reverse().map((node) => ({ node, depth: 0 }));
  for (let count = 0; stack.length > 0 && count < MAX_NODES; count += 1) {
    const { node, depth, close } = stack.pop()!;
    if (close !== undefined) out.push(close);
    else if (node.nodeType === Node.TEXT_NODE) out.push(escapeText(node.nodeValue ?? ""));
    else if (node instanceof Element) open(node, depth, out, stack);
  }
  // What is still open when a mail is too long gets closed by the parser of the frame.
  if (stack.length > 0) out.push('<p class="left-out">[The rest of this mail is too long to show.]</p>');
  return out.join("");
}

function open(element: Element, depth: number, out: string[], stack: Step[]): void {
  const name = element.localName;
  if (DROPPED.has(name)) return;
  if (name === "img") return void out.push(image(element));
  const shown = ALLOWED.has(name) && depth < MAX_DEPTH;
  if (shown) out.push(`<${name}${attributes(element)}>`);
  const isVoid = /^(br|hr|wbr|col)$/.test(name);
  if (shown && !isVoid) stack.push({ node: element, depth, close: `</${name}>${name === "a" ? target(element) : ""}` });
  for (const child of [...element.childNodes].reverse()) stack.push({ node: child, depth: depth + 1 });
}

const POLICY = "default-src 'none'; img-src data:; style-src 'self'; form-action 'none'; base-uri 'none'";

/** A complete document for `srcdoc`. */
export function safeMailDocument(html: string): string {
  const parsed = new DOMParser().parseFromString(html, "text/html");
  return `<!doctype html><html><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="${POLICY}">` +
    `<link rel="stylesheet" href="/assets/mail.css"></head><body>${serialize(parsed.body)}</body></html>`;
}
