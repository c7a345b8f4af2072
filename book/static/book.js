// From the file system a browser does not let a page read another one, so the search shows titles there, without extracts.
if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;

// A search's extract of a page leaves out the TeX of its formulas.
document.addEventListener("DOMContentLoaded", () => {
  if (typeof Search === "undefined") return;
  const prose = Search.htmlToText;
  const formula = /<(span|div) class="math[^>]*>.*?<\/\1>/gs;
  Search.htmlToText = (html, anchor) => prose(html.replace(formula, "…"), anchor);
});
