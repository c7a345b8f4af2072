  // What the explorer and the live page share; the page's own script follows. One run starts every page of a kind that
  // hasn't started, and leaves no global name.

  const make = (tag, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };

  function bytes(base64) {
    const text = atob(base64), out = new Uint8Array(text.length);
    for (let i = 0; i < out.length; i++) out[i] = text.charCodeAt(i);
    return out;
  }

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

  // Every page of a kind on this page: start(host, root) fills its shadow root.
  function begin(kind, start) {
    for (const host of document.querySelectorAll(`[data-vit-${kind}="1"]`)) {
      if (host.shadowRoot) continue;
      const root = host.attachShadow({ mode: "open" });
      root.innerHTML = "<slot></slot>"; // the pictures and answers, until all is ready
      Promise.all([...host.querySelectorAll("img")].map((image) => image.decode())).then(() => {
        follow(host);
        start(host, root);
        host.dataset.ready = "true";
      });
    }
  }

