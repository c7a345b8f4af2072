// From the file system a browser does not let a page read another one, so the search shows titles there, without extracts.
if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
