// Runs before the first paint, so that a page with a chosen theme does not flash in the other one.
try {
  const theme = localStorage.getItem("mailonce.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Storage is blocked: the theme follows the system.
}
