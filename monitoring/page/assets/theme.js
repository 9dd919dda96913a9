// Dark or light theme: the choice on the page, else the system's. It is set before the first paint to avoid a flash.
(() => {
  const KEY = "tidegate-theme";
  const system = matchMedia("(prefers-color-scheme: dark)");
  /** @type {string | null} */
  let chosen = null;
  try {
    chosen = localStorage.getItem(KEY);
  } catch {
    // Storage may be forbidden; the choice then lasts as long as the page.
  }
  const show = () => {
    document.documentElement.dataset.theme = chosen === "dark" || chosen === "light"
      ? chosen
      : system.matches
        ? "dark"
        : "light";
    document.dispatchEvent(new Event("themechange"));
  };
  system.addEventListener("change", show);
  show();
  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    if (!button) return; // a runbook on its own page has no switch
    const name = () =>
      button.setAttribute(
        "aria-label",
        document.documentElement.dataset.theme === "dark" ? "Light colours" : "Dark colours",
      );
    button.addEventListener("click", () => {
      chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
      try {
        localStorage.setItem(KEY, chosen);
      } catch {
        // as above
      }
      show();
    });
    document.addEventListener("themechange", name);
    name();
  });
})();
