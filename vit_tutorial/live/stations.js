
  // ------------------------------------------------------------------------------------------------- what is shown

  const few = (names) => (names.length <= 12 ? names : []); // as many as find a place
  const percent = (share) => `${(100 * share).toFixed(1)} %`;
  const digits = (value) => (value === 0 ? "0" : Math.abs(value) < 1e-3 || Math.abs(value) >= 1e5
    ? value.toExponential(2) : value.toPrecision(4)).replace("-", "−");
  const norm = (row) => Math.hypot(...row);
  const rowOf = (matrix, row, width) => matrix.subarray(row * width, (row + 1) * width);
  const cosine = (a, b) => a.reduce((sum, v, i) => sum + v * b[i], 0) / (norm(a) * norm(b) || 1);

  // Numbers as coloured cells, each of which can be read: by pointing at it, or with the arrow keys.
  // show({values, columns, colours, name}): colours "signed" about zero, "heat" from zero, "grey" from 0 to 1.
  // texts: the numbers stand in the cells, if they are few; labels: words under them, side by side.
  function cells(place, label, { signed, heat }, say) {
    const canvas = make("canvas", { tabIndex: 0 }), reading = make("p", { className: "reading" }, "\u00a0");
    canvas.setAttribute("role", "application");
    canvas.setAttribute("aria-roledescription", "numbers");
    const under = make("canvas", { className: "under", ariaHidden: "true" }); // the picture, where cells lie over it
    const box = make("div", { className: "cells" }, under, canvas), mark = make("i", { className: "mark" });
    const texts = make("div", { className: "texts", ariaHidden: "true" });
    const labels = make("div", { className: "labels", ariaHidden: "true" });
    box.append(texts, mark);
    place.append(box, labels, reading);
    let shown = { values: [0], columns: 1 }, at = null;
    const colour = (table, share) => parseInt(table.slice(6 * share, 6 * share + 6), 16);

    function summary() {
      const { values, about } = shown;
      const low = values.reduce((a, b) => Math.min(a, b)), high = values.reduce((a, b) => Math.max(a, b));
      return about ?? `${values.length.toLocaleString("en")} numbers from ${digits(low)} to ${digits(high)}`;
    }

    function read() {
      const { values, columns, name } = shown;
      if (at !== null && at >= values.length) at = null;
      mark.style.display = at === null ? "none" : "";
      if (at === null) reading.textContent = summary();
      else {
        reading.textContent = `${name ? name(at) : `number ${at}`}: ${digits(values[at])}`;
        const [rows, row, column] = [values.length / columns, Math.floor(at / columns), at % columns];
        Object.assign(mark.style, { left: `${(100 * column) / columns}%`, width: `${100 / columns}%`,
          top: `${(100 * row) / rows}%`, height: `${100 / rows}%` });
      }
      canvas.setAttribute("aria-label", `${label}: ${summary()}. Arrow keys read them.`);
    }

    function show(next) {
      shown = next;
      const { values, columns, colours = "signed", square } = next, rows = values.length / columns;
      if (canvas.width !== columns || canvas.height !== rows) Object.assign(canvas, { width: columns, height: rows });
      box.classList.toggle("over", Boolean(next.picture));
      if (next.picture) paint(under, next.picture, next.shape);
      box.style.aspectRatio = square ? `${columns} / ${rows}` : "";
      box.style.setProperty("--rows", rows);
      const image = new ImageData(columns, rows), pixels = new Uint32Array(image.data.buffer);
      const most = next.most ?? (values.reduce((a, b) => Math.max(a, Math.abs(b)), 1e-12));
      for (let i = 0; i < values.length; i++) {
        const share = Math.min(Math.max(values[i] / most, -1), 1);
        const rgb = colours === "grey" ? (1 + 256 + 65536) * Math.round(255 * Math.max(share, 0))
          : colours === "heat" ? colour(heat, Math.round(255 * Math.max(share, 0))) : colour(signed, Math.round(127.5 + 127.5 * share));
        pixels[i] = ((255 << 24) | ((rgb & 255) << 16) | (rgb & 0xff00) | (rgb >> 16)) >>> 0;
      }
      canvas.getContext("2d").putImageData(image, 0, 0);
      labels.replaceChildren(...(next.labels ?? []).map((word) => make("span", { textContent: word, title: word })));
      const some = next.texts && values.length <= 25 ? values : [];
      if (texts.childElementCount !== some.length) texts.replaceChildren(...Array.from(some, () => make("span")));
      texts.style.gridTemplateColumns = `repeat(${columns}, minmax(0, 1fr))`;
      some.forEach((value, i) => { // in a cell that is dark, white
        const rgb = pixels[i], light = 0.3 * (rgb & 255) + 0.59 * ((rgb >> 8) & 255) + 0.11 * ((rgb >> 16) & 255);
        Object.assign(texts.children[i], { textContent: value.toFixed(Math.abs(value) < 10 ? 2 : 1).replace("-", "−") });
        texts.children[i].style.color = light > 140 ? "#000000" : "#ffffff";
      });
      read();
    }

    const pointedAt = ({ clientX, clientY }) => {
      const { left, top, width, height } = canvas.getBoundingClientRect(), { values, columns } = shown, rows = values.length / columns;
      const [x, y] = [Math.floor(((clientX - left) / width) * columns), Math.floor(((clientY - top) / height) * rows)];
      return Math.min(Math.max(y, 0), rows - 1) * columns + Math.min(Math.max(x, 0), columns - 1);
    };
    for (const kind of ["pointermove", "pointerdown"]) {
      canvas.addEventListener(kind, (event) => { at = pointedAt(event); read(); shown.pointed?.(at); });
    }
    canvas.addEventListener("pointerleave", ({ pointerType }) => {
      if (pointerType === "touch") return; // a finger has left when it is lifted, and then its number is read
      at = null;
      read();
    });
    canvas.addEventListener("click", (event) => shown.clicked?.(pointedAt(event)));
    canvas.addEventListener("blur", () => { at = null; read(); });
    canvas.addEventListener("keydown", (event) => {
      const { values, columns } = shown;
      const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns, Home: -Infinity, End: Infinity }[event.key];
      if (event.key === "Enter" && at !== null) shown.clicked?.(at);
      if (by === undefined || event.shiftKey || event.ctrlKey || event.altKey || event.metaKey) return;
      event.preventDefault();
      const from = at ?? (Number.isFinite(by) ? -by : 0); // the first arrow reads the first number
      at = Math.min(Math.max(from + by, 0), values.length - 1);
      read();
      shown.pointed?.(at);
      say(reading.textContent);
    });
    return { show };
  }

  // What each [data-show] of the markup shows: of a run, for the chosen token, layer and head.
  const SHOWN = {
    pixels({ picture, data: { config }, patch, across }) {
      const [C, H, W] = config.shape, [P, Q] = config.patch_size, length = C * P * Q;
      const flat = rowOf(patchify(picture, [C, H, W], [P, Q]), patch, length), place = (i) => { // channels side by side
        const [row, column] = [Math.floor(i / (C * Q)), i % (C * Q)];
        return [Math.floor(column / Q), row, column % Q];
      };
      const values = flat.map((_, i) => { const [c, row, column] = place(i); return flat[(c * P + row) * Q + column]; });
      const name = (i) => { const [c, row, column] = place(i); return `${across(c)}row ${row}, column ${column}`; };
      return { values, columns: C * Q, colours: "grey", most: 1, name, square: true, texts: length <= 16, labels: C === 3 ? ["red", "green", "blue"] : [] };
    },
    x({ run, data: { config }, patch, across }) {
      const [C] = config.shape, [P, Q] = config.patch_size, length = C * P * Q;
      const name = (i) => `number ${i} (${across(Math.floor(i / (P * Q)))}row ${Math.floor(i / Q) % P}, column ${i % Q})`;
      return { values: rowOf(run.embed.patches, patch, length), columns: length, name, texts: length <= 16 };
    },
    cut({ run, patch, data: { config } }) {
      const length = run.embed.cut.length / config.patches;
      return { values: rowOf(run.embed.cut, patch, length), columns: length };
    },
    E({ weights, data: { config }, model }) {
      const { weight } = weights.embed.patches.proj, columns = weight.length / config.dim;
      return { values: weight, columns, name: (i) => `row ${Math.floor(i / columns)}, column ${i % columns}`, pointed: (i) => model.follow(Math.floor(i / columns)) };
    },
    projected({ run, patch, D, model }) {
      return { values: rowOf(run.embed.projected, patch, D), columns: D, pointed: (i) => model.follow(i) };
    },
    content: ({ run, token, D }) => ({ values: rowOf(run.embed.content, token, D), columns: D }),
    position: ({ run, token, D }) => ({ values: rowOf(run.embed.position, token, D), columns: D }),
    z0: ({ run, token, D }) => ({ values: rowOf(run.embed.tokens, token, D), columns: D }),
    all({ run, D, tokenName }) {
      return { values: run.embed.tokens, columns: D, name: (i) => `${tokenName(Math.floor(i / D))}, number ${i % D}` };
    },
    z: ({ block, token, D }) => ({ values: rowOf(block.input, token, D), columns: D }),
    norm1: ({ block, token, D }) => ({ values: rowOf(block.norm1, token, D), columns: D }),
    q: ({ one, token, d }) => ({ values: rowOf(one.q, token, d), columns: d }),
    k: ({ one, token, d }) => ({ values: rowOf(one.k, token, d), columns: d }),
    v: ({ one, token, d }) => ({ values: rowOf(one.v, token, d), columns: d }),
    sums: ({ one, token, d }) => ({ values: rowOf(one.sums, token, d), columns: d }),
    joined({ block, token, D, d }) {
      const name = (i) => `head ${Math.floor(i / d)}, number ${i % d}`;
      return { values: rowOf(block.attention.joined, token, D), columns: D, name };
    },
    attended: ({ block, token, D }) => ({ values: rowOf(block.attention.out, token, D), columns: D }),
    middle: ({ block, token, D }) => ({ values: rowOf(block.middle, token, D), columns: D }),
    norm2: ({ block, token, D }) => ({ values: rowOf(block.norm2, token, D), columns: D }),
    before: ({ block, token, M }) => ({ values: rowOf(block.mlp.before, token, M), columns: M, name: (i) => `unit ${i}` }),
    hidden: ({ block, token, M }) => ({ values: rowOf(block.mlp.hidden, token, M), columns: M, name: (i) => `unit ${i}` }),
    mlp: ({ block, token, D }) => ({ values: rowOf(block.mlp.out, token, D), columns: D }),
    out: ({ block, token, D }) => ({ values: rowOf(block.out, token, D), columns: D }),
    lengths({ run, token, D }) {
      const states = [run.embed.tokens, ...run.blocks.flatMap(({ middle, out }) => [middle, out])];
      const values = Float32Array.from(states, (z) => norm(rowOf(z, token, D)));
      const name = (i) => (i ? `block ${Math.floor((i - 1) / 2)}, after ${i % 2 ? "attention" : "its MLP"}` : "after the embedding");
      return { values, columns: values.length, colours: "heat", name, texts: true };
    },
    last: ({ run, token, D }) => ({ values: rowOf(run.blocks.at(-1).out, token, D), columns: D }),
    norm: ({ run, token, D }) => ({ values: rowOf(run.norm, token, D), columns: D }),
    pooled: ({ run }) => ({ values: run.pooled, columns: run.pooled.length }),
    logits: ({ run, data }) => ({ values: run.logits, columns: run.logits.length, name: (i) => data.classes[i], texts: true, labels: few(data.classes) }),
    probabilities({ run, data }) {
      return { values: run.probabilities, columns: run.logits.length, colours: "heat", most: 1, name: (i) => data.classes[i], texts: true, labels: few(data.classes) };
    },
  };

  // What each [data-map] shows: one number a token, the patches where they stand in the picture.
  const MAPS = {
    likeness({ weights, run, token, D, T }) {
      const { position } = run.embed, mine = rowOf(position, token, D);
      return { values: Float32Array.from({ length: T }, (_, t) => cosine(mine, rowOf(position, t, D))), most: 1 };
    },
    scores: ({ one, token, T }) => ({ values: rowOf(one.scores, token, T) }),
    scaled: ({ one, token, T }) => ({ values: rowOf(one.scaled, token, T) }),
    weights({ one, token, T, picture, data }) {
      return { values: rowOf(one.weights, token, T), colours: "heat", picture, shape: data.config.shape };
    },
  };

  // A map of all tokens: those before the patches as cells of their own, then the patches as a grid.
  function tokenMap(place, label, data, say) {
    const { config: { prefix, grid } } = data, special = make("div", { className: "special-cells" });
    const first = prefix ? cells(special, `${label}, class token`, data, say) : null;
    if (prefix) place.append(special);
    const rest = cells(place, `${label}, patches`, data, say);
    place.classList.add("token-map");
    return { show({ values, colours = "signed", most, tokenName, clicked, picture, shape }) {
      const all = most ?? values.reduce((a, b) => Math.max(a, Math.abs(b)), 1e-12);
      const name = (i) => tokenName(i + prefix), pick = (i) => clicked?.(i + prefix);
      first?.show({ values: values.subarray(0, prefix), columns: prefix, colours, most: all, name: tokenName, clicked,
        about: `class token ${digits(values[0])}` });
      rest.show({ values: values.subarray(prefix), columns: grid[1], colours, most: all, name, clicked: pick, square: true, picture, shape });
    } };
  }

  // What each [data-text] says.
  const TEXTS = {
    grid: ({ data: { config: { grid, patches } } }) => `${grid[0]} × ${grid[1]} = ${patches}`,
    brightest: ({ data: { config: { shape } } }) => (shape[0] > 1 ? "full" : "white"),
    count: ({ D }) => String(D),
    divided: ({ d }) => `Without ÷ √d (d = ${d} is how many numbers a query has) the scores would be so far apart that a token looks at one place only.`,
    unread({ token, tokenName, data: { config: { pool, prefix } } }) {
      return pool === "cls" && token >= prefix ? `You follow ${tokenName(token)}, which the head doesn’t read: choose the class token to see what it reads.` : "";
    },
    noneSeen: ({ data: { config: { pool } } }) => (pool === "mean" ? "" : "After the embedding it is the same for every picture: the class token has seen no patch yet."),
    choosePatch: ({ token, tokenName, data: { config: { prefix } } }) => (token < prefix ? `You follow the ${tokenName(token)}: choose a patch to hide, swap or repeat it.` : "The chosen patch is the one with the blue frame."),
    channels: ({ data: { config: { shape } } }) => (shape[0] > 1 ? ", first all red, then all green, then all blue" : ""),
    normalise: ({ data: { mean, std } }) => `(pixel − ${mean[0].toFixed(3)}) / ${std[0].toFixed(3)}${mean.length > 1 ? " for red" : ""}`,
    dim: ({ D }) => `D = ${D}`,
    mlpDim: ({ M }) => `M = ${M}`,
    block: ({ data: { config: { depth } }, layer }) => `Attention and MLP together are a block. This model has ${depth}, one after the other; you are in block ${layer}.`,
    stem({ data: { config }, run }) {
      if (!config.stem) return "";
      const maps = run.embed.maps.map(({ shape: [F, h, w] }) => `${F} × ${h} × ${w}`);
      return `This model looks at the picture with ${maps.length} convolutions before it cuts it (lesson 12 of the series). Their maps, channels × rows × columns: ${maps.join(", then ")}. So neighbouring tokens share pixels.`;
    },
    sum({ run, weights, data: { config }, patch, D, model }) {
      const { weight, bias } = weights.embed.patches.proj, length = weight.length / D, j = model.row();
      const terms = Array.from({ length }, (_, i) => [run.embed.cut[patch * length + i], weight[j * length + i]]);
      const some = terms.slice(0, 2).map(([a, b]) => `${digits(a)} · (${digits(b)})`).join(" + ");
      return `Number ${j} = ${some}${length > 2 ? " + …" : ""} (${length} products), and the learned offset ${digits(bias[j])}: ${digits(run.embed.projected[patch * D + j])}`;
    },
    classToken: ({ data: { config } }) => (config.prefix ? "One more token, the class token, comes first. It belongs to no patch, and will collect the answer." : "This model has no class token: in the end it takes the mean of all patches."),
    contentName: ({ token, data: { config } }) => (token < config.prefix ? "The class token, learned" : `${config.stem ? "" : "x E, "}the token of the patch`),
    scale: ({ data: { config }, changes, d }) => {
      const by = [changes.scale === false ? "" : ` ÷ √d = √${d}`, (changes.temperature ?? 1) === 1 ? "" : ` ÷ ${changes.temperature}`];
      return by.join("") ? `The same${by.join("")}` : "The same, not divided";
    },
    active({ block, token, M }) {
      const on = rowOf(block.mlp.before, token, M).reduce((sum, v) => sum + (v > 0), 0);
      return `${on} of ${M} on`;
    },
    attentionLengths({ block, token, D }) {
      const [z, out, middle] = [block.input, block.attention.out, block.middle].map((x) => digits(norm(rowOf(x, token, D))));
      return `Lengths: ‖z‖ = ${z}, what attention adds ${out}, together ${middle}.`;
    },
    pooling: ({ data: { config: { pool } } }) => ({ cls: "Only the class token is read: the patches have done their work by being looked at.",
      mean: "The mean of all patches is read.", distilled: "The class token and the distillation token are read, end to end." })[pool],
    read: ({ data: { config: { pool } } }) => ({ cls: "the class token only", mean: "the mean of all patches", distilled: "the first two tokens" })[pool],
  };
