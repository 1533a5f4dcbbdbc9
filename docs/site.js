// Names for screen readers, and the keyboard: what the theme leaves out.
let blocks = 0;

function complete() {
  for (const nav of document.querySelectorAll(".md-code__nav:not([aria-label])")) {
    blocks += 1;
    nav.setAttribute("aria-label", `Code block ${blocks}`);
  }
  // What is too wide can be scrolled with the keys.
  const wide = "pre > code, .md-typeset__scrollwrap, table.dataframe, .formula";
  for (const part of document.querySelectorAll(wide)) {
    if (!part.hasAttribute("tabindex")) part.tabIndex = 0;
  }
  document.querySelector(".md-search:not([aria-label])")?.setAttribute("aria-label", "Search");
  for (const nav of document.querySelectorAll(".md-nav[aria-labelledby]")) {
    const label = document.getElementById(nav.getAttribute("aria-labelledby"));
    const title = nav.querySelector(".md-nav__title");
    if (label && title && !label.textContent.trim()) {
      nav.removeAttribute("aria-labelledby");
      nav.setAttribute("aria-label", title.textContent.trim());
    }
  }
}

new MutationObserver(complete).observe(document.documentElement, { childList: true, subtree: true });
addEventListener("DOMContentLoaded", complete);
