// Saved views: named filters, kept in this browser.
import { signal } from "@preact/signals";
import { toast } from "../../components/Toast";

export interface View {
  name: string;
  /** The query of the address, such as `state=held&to=eve%40example.com`. */
  query: string;
}

const STORAGE_KEY = "mailonce.views";

function load(): View[] {
  try {
    const stored: unknown = JSON.parse(localStorage.getItem(STORAGE_KEY) ?? "[]");
    return Array.isArray(stored) ? stored.filter((view): view is View => typeof view?.name === "string" && typeof view?.query === "string") : [];
  } catch {
    return [];
  }
}

export const views = signal<View[]>(load());

function store(next: View[]): void {
  views.value = next;
  try {
    localStorage.setItem(STORAGE_KEY, JSON.stringify(next));
  } catch {
    toast("This browser keeps no data for the page, so the views are gone after a reload");
  }
}

export const saveView = (name: string, query: string): void => store([...views.value.filter((view) => view.name !== name), { name, query }]);
export const removeView = (name: string): void => store(views.value.filter((view) => view.name !== name));

export const BUILT_IN: View[] = [
  { name: "All", query: "" },
  { name: "Held", query: "state=held" },
  { name: "Unknown", query: "state=unknown" },
  { name: "Failed", query: "state=failed" },
  { name: "Bounced", query: "state=bounced" },
];
