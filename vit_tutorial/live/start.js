// How a page starts, and where its theme comes from.

// The theme of the page around it where that has one (JupyterLab's, VS Code's, Sphinx's), else the system's.
function followTheme(host) {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const { body, documentElement } = document;
  const look = () => {
    const jupyter = { true: "light", false: "dark" }[body.dataset.jpThemeLight];
    const words = [jupyter, body.className, documentElement.dataset.theme].join(" ");
    const dark = /\bdark\b|vscode-high-contrast/.test(words) || system.matches;
    host.dataset.theme = dark && !/\blight\b/.test(words) ? "dark" : "light";
  };
  look();
  system.addEventListener("change", look);
  for (const element of [body, documentElement]) new MutationObserver(look).observe(element, { attributes: true });
}

// Starts every page that hasn't started yet: start({host, root, data, images}), with the markup in the shadow root.
// Until then the pictures and answers are shown.
export function begin(start) {
  const hosts = document.querySelectorAll('[data-vit-live="1"]');
  for (const host of hosts) {
    if (host.shadowRoot) continue;
    const root = host.attachShadow({ mode: "open" });
    root.innerHTML = "<slot></slot>";
    const images = [...host.querySelectorAll("img")];
    Promise.all(images.map((image) => image.decode())).then(() => {
      followTheme(host);
      const data = JSON.parse(host.querySelector('script[type="application/json"]').textContent);
      root.innerHTML = host.querySelector('script[type="text/template"]').textContent;
      start({ host, root, data, images });
      host.dataset.ready = "true";
    });
  }
}
