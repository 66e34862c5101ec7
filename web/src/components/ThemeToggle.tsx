// Light, dark, or as the system says. theme.js applies a stored choice before the first paint.
import { computed, signal } from "@preact/signals";

type Theme = "system" | "light" | "dark";
const STORAGE_KEY = "mailonce.theme";
const NEXT: Record<Theme, Theme> = { system: "light", light: "dark", dark: "system" };

const stored = (): Theme => {
  const theme = document.documentElement.dataset["theme"];
  return theme === "light" || theme === "dark" ? theme : "system";
};
const theme = signal<Theme>(stored());

const system = window.matchMedia("(prefers-color-scheme: dark)");
const systemIsDark = signal(system.matches);
system.addEventListener("change", ({ matches }) => (systemIsDark.value = matches));

/** For what cannot follow the style sheet, such as the frame of a mail. */
export const isDark = computed(() => (theme.value === "system" ? systemIsDark.value : theme.value === "dark"));

/** Where storage is blocked, the choice lasts until the page is loaded again. */
function store(value: Theme | null): void {
  try {
    if (value) localStorage.setItem(STORAGE_KEY, value);
    else localStorage.removeItem(STORAGE_KEY);
  } catch {
    // The theme itself has changed already.
  }
}

export function setTheme(next: Theme): void {
  theme.value = next;
  if (next === "system") {
    delete document.documentElement.dataset["theme"];
    store(null);
  } else {
    document.documentElement.dataset["theme"] = next;
    store(next);
  }
}

export const toggleTheme = (): void => setTheme(NEXT[theme.value]);

export const ThemeToggle = () =>
  <button type="button" class="button quiet small" onClick={toggleTheme}>Theme: {theme.value}</button>;
