// Where the diagram's parts lie, and how its lines run. Lying, it runs from left to right; upright, on a phone, from the
// top down. "Along" is the way through the model; "across" is the distance from the stream of tokens.

import { clamp } from "../pages/page.js";

const SHORTEST = 76; // pixels of a block that lies, at least; where these have no room, the map stands
export const EDGE = { begin: 190, end: 158 }; // what stands before the blocks, and after them

// How large the parts are: "along" the way through the model, and "across" it, from the stream of tokens.
export function planOf({ L, h }, width) {
  const isUpright = width < Math.min(760, EDGE.begin + L * SHORTEST + EDGE.end);
  const head = isUpright ? clamp(Math.max(112, width - 270) / h, 16, 60) : clamp(120 / h, 16, 24);
  const block = isUpright ? 128 : Math.max(SHORTEST, (width - EDGE.begin - EDGE.end) / L);
  const top = 26 + Math.max(h * head, isUpright ? 0 : 72); // where the heads end
  const along = EDGE.begin + L * block + EDGE.end;
  const across = top + 48;
  const place = isUpright ? (a, c) => [66 + c, a] : (a, c) => [a, across - c];
  const size = isUpright ? [width, along] : [along, across + 38];
  return {
    isUpright,
    head,
    block,
    top,
    across,
    place,
    size,
    heads: [...Array(h).keys()],
    blocks: [...Array(L).keys()],
  };
}

// Where a head is: head 0 is the uppermost, or the leftmost.
const acrossOf = ({ isUpright, head, heads }, i) => 26 + ((isUpright ? i : heads.length - 1 - i) + 0.5) * head;

// A line that leaves and arrives along the way.
function curve({ place }, [a, c], [toA, toC]) {
  const middle = (a + toA) / 2;
  const points = [place(a, c), place(middle, c), place(middle, toC), place(toA, toC)].map(([x, y]) => `${x} ${y}`);
  return `M ${points[0]} C ${points.slice(1).join(", ")}`;
}

// The lines within a block: {d, of: what its width is, parts: it is cut where one of these is off}.
function blockLines(plan, layer) {
  const { block, heads, top } = plan;
  const a = EDGE.begin + layer * block;
  const at = (share) => a + share * block;
  const name = `blocks.${layer}`;
  const attention = [name, `${name}.attention`];
  const line = (from, to, of, parts) => ({ d: curve(plan, from, to), of: `${layer}.${of}`, parts });
  const toHeads = heads.flatMap((i) => {
    const parts = [...attention, `${name}.attention.heads.${i}`];
    return [
      line([at(0.04), 0], [at(0.3), acrossOf(plan, i)], "each", parts),
      line([at(0.3), acrossOf(plan, i)], [at(0.56), 0], `head ${i}`, parts),
    ];
  });
  const mlp = [name, `${name}.mlp`];
  return [
    line([at(0.04), 0], [at(0.56), 0], "input", [`${name}.attention.residual`]),
    line([at(0.56), 0], [at(0.62), 0], "middle", []),
    line([at(0.62), 0], [at(0.98), 0], "middle", [`${name}.mlp.residual`]),
    line([at(0.98), 0], [at(1.04), 0], "out", []),
    ...toHeads,
    line([at(0.62), 0], [at(0.8), (26 + top) / 2], "each", mlp),
    line([at(0.8), (26 + top) / 2], [at(0.98), 0], "mlp", mlp),
  ];
}

export function linesOf(plan) {
  const end = EDGE.begin + plan.blocks.length * plan.block;
  const line = (from, to, of) => ({ d: curve(plan, [from, 0], [to, 0]), of, parts: [] });
  const ends = [
    line(30, 90, "each"),
    line(90, 150, "each"),
    line(150, EDGE.begin + 0.04 * plan.block, "0.input"),
    line(end + 0.04 * plan.block, end + 46, "read"),
    line(end + 46, end + 122, "each"),
  ];
  return [...ends, ...plan.blocks.flatMap((layer) => blockLines(plan, layer))];
}

// How far along the diagram is shown while the story is at a station.
export function reachOf({ block, blocks }, station) {
  const { begin } = EDGE;
  const ends = {
    patches: 60,
    embedding: 120,
    positions: begin,
    attention: begin + Math.max(0.62 * block, 76),
    mlp: begin + block,
  };
  return ends[station] ?? (station === "layers" ? begin + blocks.length * block + 34 : Infinity);
}

// The parts within a block that can be opened, or cut: {a, c, w, h, text, part, label, to}.
function blockParts(plan, layer) {
  const { block, head, heads, top, isUpright } = plan;
  const at = (share) => EDGE.begin + (layer + share) * block;
  const name = `blocks.${layer}`;
  const words = isUpright ? [top + 36, top + 36] : [top + 12, top + 36]; // where names stand
  const word = [70, isUpright ? 26 : 21];
  const shortcut = isUpright ? [34, 24] : [31, 20];
  const one = (a, c, w, h, text, part, label, to) => {
    return { a: at(a), c, w, h, text, part: name + part, label: `block ${layer}${label}`, to, layer };
  };
  const parts = heads.map((i) => {
    const c = acrossOf(plan, i);
    const part = one(0.3, c, head - 3, head - 3, "", `.attention.heads.${i}`, `, head ${i}`, "attention");
    return { ...part, head: i };
  });
  return [
    one(isUpright ? 0.8 : 0.5, words[1], ...word, `block ${layer}`, "", "", "attention"),
    one(
      isUpright ? 0.3 : Math.max(0.34, 38 / block),
      words[0],
      ...word,
      "attention",
      ".attention",
      ", attention",
      "attention",
    ),
    ...parts,
    one(0.3, 0, ...shortcut, "+ z", ".attention.residual", ", shortcut beside attention", "attention"),
    one(0.8, (26 + top) / 2, 38, 44, "MLP", ".mlp", ", MLP", "mlp"),
    one(0.8, 0, ...shortcut, "+ z′", ".mlp.residual", ", shortcut beside the MLP", "mlp"),
  ];
}

// The ground that a block's parts stand on, as a rectangle of an SVG.
export function frameOf(plan, layer) {
  const corners = [plan.place(EDGE.begin + (layer + 0.03) * plan.block, -12)];
  const widest = plan.top + (plan.isUpright ? 68 : 48);
  corners.push(plan.place(EDGE.begin + (layer + 0.99) * plan.block, widest));
  const [x, y] = [0, 1].map((i) => Math.min(corners[0][i], corners[1][i]));
  const [width, height] = [0, 1].map((i) => Math.abs(corners[0][i] - corners[1][i]));
  return { x, y, width, height, rx: 7 };
}

export function partsOfMap(plan) {
  const end = EDGE.begin + plan.blocks.length * plan.block;
  const one = (a, text, label, to, look) => ({ a, c: 0, w: 54, h: 54, text, label, to, look });
  const lenses = [0, ...plan.blocks.map((layer) => layer + 1)].map((step) => {
    const label = step ? `the answer after block ${step - 1}` : "the answer after the embedding";
    const a = EDGE.begin + step * plan.block + (step ? 0 : 20);
    return {
      a,
      c: plan.isUpright ? -33 : -25,
      w: Math.min(64, plan.block - 2),
      h: 21,
      text: "",
      label,
      to: "layers",
      step,
    };
  });
  return [
    one(30, "", "the picture, in patches", "patches", "picture"),
    one(90, "E", "patches, linear embedding", "embedding", "patches"),
    one(150, "", "tokens and positions", "positions", "tokens"),
    ...plan.blocks.flatMap((layer) => blockParts(plan, layer)),
    ...lenses,
    { ...one(end + 46, "classifier", "the classifier", "head"), w: 74, h: 28 },
    { ...one(end + 122, "", "the answer", "head", "answer"), w: 62, h: 60 },
  ];
}
