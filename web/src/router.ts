// Paths without a hash. Plain links work: clicks on links to pages of the dashboard are taken over here.
import { computed, signal } from "@preact/signals";

export interface Match {
  params: Record<string, string>;
}

const current = () => ({ path: window.location.pathname, search: window.location.search });
const location = signal(current());

export const path = computed(() => location.value.path);
export const search = computed(() => new URLSearchParams(location.value.search));

/** The parameters of `/emails/:id` in a path, or null when the pattern does not match. */
export function match(pattern: string, pathname: string): Match | null {
  const wanted = pattern.split("/").filter(Boolean);
  const given = pathname.split("/").filter(Boolean);
  if (wanted.length !== given.length) return null;
  const params: Record<string, string> = {};
  for (const [index, part] of wanted.entries()) {
    const value = given[index] ?? "";
    if (part.startsWith(":")) params[part.slice(1)] = safeDecode(value);
    else if (part !== value) return null;
  }
  return { params };
}

function safeDecode(value: string): string {
  try {
    return decodeURIComponent(value);
  } catch {
    return value;
  }
}

let goingBack = false;

/** True while the current page was reached with the browser's back or forward button. */
export const isReturning = (): boolean => goingBack;

export function navigate(to: string, { replace = false } = {}): void {
  if (replace) window.history.replaceState(window.history.state, "", to);
  else {
    goingBack = false;
    window.history.replaceState({ scroll: window.scrollY }, "");
    window.history.pushState(null, "", to);
  }
  location.value = current();
  if (!replace) window.scrollTo(0, 0);
}

/** Lists that keep their rows have their height back at once; others are shorter, and the browser scrolls as far as it can. */
function goBack(event: PopStateEvent): void {
  goingBack = true;
  location.value = current();
  const { scroll } = (event.state ?? {}) as { scroll?: number };
  requestAnimationFrame(() => window.scrollTo(0, scroll ?? 0));
}

/** Changes parameters of the query without a new entry in the history. Empty values are removed. */
export function setSearch(changes: Record<string, string | null>): void {
  const params = new URLSearchParams(window.location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value) params.set(name, value);
    else params.delete(name);
  }
  const text = params.toString();
  navigate(window.location.pathname + (text ? `?${text}` : ""), { replace: true });
}

const isPlainClick = (event: MouseEvent) =>
  event.button === 0 && !event.defaultPrevented && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;

/** Starts the router. `isPage` says which paths belong to the dashboard; others are loaded from the server. */
export function startRouter(isPage: (pathname: string) => boolean): void {
  window.history.scrollRestoration = "manual";
  window.addEventListener("popstate", goBack);
  document.addEventListener("click", (event) => {
    const anchor = event.target instanceof Element ? event.target.closest("a") : null;
    if (!anchor || !isPlainClick(event) || anchor.target || anchor.hasAttribute("download")) return;
    const url = new URL(anchor.href, window.location.href);
    if (url.origin !== window.location.origin || !isPage(url.pathname) || url.hash) return;
    event.preventDefault();
    navigate(url.pathname + url.search);
  });
}

/** After a navigation: the title of the window, and the focus on the heading, so that screen readers announce the page. */
export function arrive(title: string, moveFocus: boolean): void {
  document.title = `${title} · mailonce`;
  if (!moveFocus) return;
  const heading = document.querySelector<HTMLElement>("main h1");
  heading?.focus({ preventScroll: true });
}
