import { digits, row, rowOf } from "../cells.js";
import { patchify } from "../model.js";
import { drawPicker } from "../picker.js";

export const patchesStation = {
  title: "1 Patches",
  shows: {
    pixels({ picture, config, patch, length, C, channel }) {
      const [P, Q] = config.patch_size;
      const flat = rowOf(patchify(picture, config.shape, config.patch_size), patch, length);
      const place = (i) => [Math.floor((i % (C * Q)) / Q), Math.floor(i / (C * Q)), i % Q]; // channels side by side
      const values = flat.map((_, i) => {
        const [c, y, x] = place(i);
        return flat[(c * P + y) * Q + x];
      });
      const name = (i) => {
        const [c, y, x] = place(i);
        return `${channel(c)}row ${y}, column ${x}`;
      };
      const sources = (i) => ({ sourceCells: { picture: place(i).slice(1) } });
      const labels = C === 3 ? ["red", "green", "blue"] : [];
      const texts = length <= 16;
      return { values, columns: C * Q, colours: "grey", most: 1, square: true, name, texts, labels, sources };
    },
    x({ run, picture, model, config, patch, length, C, channel }) {
      const [P, Q] = config.patch_size;
      const place = (i) => `${channel(Math.floor(i / (P * Q)))}row ${Math.floor(i / Q) % P}, column ${i % Q}`;
      const name = (i) => `number ${i} (${place(i)})`;
      const sources = (i) => {
        const [c, y, x] = [Math.floor(i / (P * Q)), Math.floor(i / Q) % P, i % Q];
        const pixel = rowOf(patchify(picture, config.shape, config.patch_size), patch, length)[i];
        const at = y * C * Q + c * Q + x; // channels stand side by side
        return {
          text: `(${digits(pixel)} − ${model.mean[c].toFixed(3)}) ÷ ${model.std[c].toFixed(3)}`,
          sourceCells: { pixels: [at, at], picture: [y, x] },
        };
      };
      return row(run.embed.patches, patch, length, { name, sources, texts: length <= 16 });
    },
  },
  texts: {
    grid: ({ rows, columns, N }) => `${rows} × ${columns} = ${N}`,
    brightest: ({ C }) => (C > 1 ? "full" : "white"),
    channels: ({ C }) => (C > 1 ? ", first all red, then all green, then all blue" : ""),
    normalise({ model: { mean, std } }) {
      return `(pixel − ${mean[0].toFixed(3)}) / ${std[0].toFixed(3)}${mean.length > 1 ? " for red" : ""}`;
    },
  },
};

// A pixel that is pointed at gets a frame in the picture, too.
export function buildPatches(page) {
  page.$('[data-station="patches"]').addEventListener("sources", ({ detail }) => drawPicker(page, detail.picture));
}
