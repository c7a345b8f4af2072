  // The page's own theme where it has one (JupyterLab's, VS Code's, Sphinx's), else the system's.
  function follow(host) {
    const system = matchMedia("(prefers-color-scheme: dark)"), { body, documentElement: page } = document;
    const look = () => {
      const jupyter = { true: "light", false: "dark" }[body.dataset.jpThemeLight];
      const words = [jupyter, body.className, page.dataset.theme].join(" ");
      const dark = /\bdark\b|vscode-high-contrast/.test(words) || system.matches;
      host.dataset.theme = dark && !/\blight\b/.test(words) ? "dark" : "light";
    };
    look();
    system.addEventListener("change", look);
    for (const element of [body, page]) new MutationObserver(look).observe(element, { attributes: true });
  }
