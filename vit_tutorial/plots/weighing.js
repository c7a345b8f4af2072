// Gives each [data-vit-weighing] its plane, in place of the still: the query is dragged, and the weighted mean follows.
for (const place of document.querySelectorAll("[data-vit-weighing]")) {
  place.removeAttribute("data-vit-weighing");
  const { tokens, query, reach, colours } = JSON.parse(place.querySelector("[type='application/json']").textContent);
  const still = place.querySelector("img");
  const size = 340; // pixels of the plane's side, from -reach to reach
  const pixel = ([x, y]) => [(size * (x + reach)) / (2 * reach), (size * (reach - y)) / (2 * reach)];

  const plane = document.createElement("canvas");
  Object.assign(plane, { width: 2 * size, height: 2 * size, tabIndex: 0 });
  plane.setAttribute("role", "application");
  plane.setAttribute("aria-label", `${still.alt} Arrow keys move the query.`);
  plane.style.cssText = `flex: 1 1 240px; min-width: 0; max-width: ${size}px; cursor: grab; touch-action: none`;
  const draw = plane.getContext("2d");
  draw.scale(2, 2);

  const table = document.createElement("table");
  table.cellPadding = "5";
  table.style.cssText = "white-space: nowrap; align-self: center; font-size: 90%; font-variant-numeric: tabular-nums";
  const titles = ["token", "score", "exp(score)", "weight", ""];
  table
    .insertRow()
    .append(...titles.map((title) => Object.assign(document.createElement("th"), { textContent: title })));
  const rows = tokens.map(({ name, place }) => {
    const row = table.insertRow();
    row.insertCell().textContent = `${name} (${place.join(", ").replaceAll("-", "−")})`;
    const cells = [row.insertCell(), row.insertCell(), row.insertCell()];
    const bar = document.createElement("div");
    bar.style.cssText = `height: 12px; background: ${colours.mean}`;
    row.insertCell().append(bar);
    return { cells, bar };
  });
  const number = (value) => value.toFixed(2).replace("-", "−");
  const written = (point) => `(${point.map(number).join(", ")})`;
  const output = document.createElement("output");

  const line = (from, to, colour, width) => {
    Object.assign(draw, { strokeStyle: colour, lineWidth: width });
    draw.beginPath();
    draw.moveTo(...pixel(from));
    draw.lineTo(...pixel(to));
    draw.stroke();
  };
  const dot = (at, radius, colour, name, below = 0) => {
    draw.fillStyle = colour;
    draw.beginPath();
    draw.arc(...pixel(at), radius, 0, 2 * Math.PI);
    draw.fill();
    const [x, y] = pixel(at);
    draw.fillText(name, x + radius + 3, y - radius + below);
  };
  const show = () => {
    const scores = tokens.map(({ place }) => query[0] * place[0] + query[1] * place[1]);
    const powers = scores.map(Math.exp);
    const sum = powers.reduce((a, b) => a + b);
    const weights = powers.map((power) => power / sum);
    const mean = [0, 1].map((axis) => weights.reduce((total, weight, n) => total + weight * tokens[n].place[axis], 0));
    rows.forEach(({ cells, bar }, n) => {
      cells[0].textContent = number(scores[n]);
      cells[1].textContent = powers[n] < 1000 ? powers[n].toFixed(2) : powers[n].toExponential(1);
      cells[2].textContent = weights[n].toFixed(3);
      bar.style.width = `${70 * weights[n]}px`;
    });
    output.value = `query ${written(query)}   weighted mean ${written(mean)}`;

    draw.fillStyle = "#ffffff";
    draw.fillRect(0, 0, size, size);
    for (let n = -Math.floor(reach); n <= reach; n++) {
      line([n, -reach], [n, reach], n ? "#eeeeee" : "#aaaaaa", 1);
      line([-reach, n], [reach, n], n ? "#eeeeee" : "#aaaaaa", 1);
    }
    draw.font = "14px sans-serif";
    tokens.forEach(({ place }, n) => line(place, tokens[(n + 1) % tokens.length].place, colours.token, 1));
    tokens.forEach(({ place, name }, n) => dot(place, 4 + 10 * weights[n], colours.token, name));
    line([0, 0], query, colours.query, 3);
    dot(query, 8, colours.query, "query", 26);
    dot(mean, 8, colours.mean, "mean");
  };
  const move = (x, y) => {
    query[0] = Math.max(-reach, Math.min(reach, x));
    query[1] = Math.max(-reach, Math.min(reach, y));
    show();
  };
  const drag = ({ offsetX, offsetY, buttons }) => {
    if (!buttons) return;
    const scale = (2 * reach) / plane.clientWidth;
    move(offsetX * scale - reach, reach - offsetY * scale);
  };
  plane.onpointerdown = (event) => {
    plane.setPointerCapture(event.pointerId);
    drag(event);
  };
  plane.onpointermove = drag;
  plane.onkeydown = (event) => {
    const step = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, 0.1], ArrowDown: [0, -0.1] }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation(); // the notebook's own keys
    move(query[0] + step[0], query[1] + step[1]);
  };
  const both = document.createElement("div");
  both.style.cssText = "display: flex; flex-wrap: wrap; gap: 12px; margin: 4px 0";
  both.append(plane, table);
  still.replaceWith(both, output);
  show();
}
