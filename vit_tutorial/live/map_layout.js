// Where the diagram's parts lie, and how its lines run, from left to right; where it has no room, it is scrolled. "Along"
// is the way through the model; "across" is the distance from the stream of tokens, upwards.

import { blockName, headName } from "./changes.js";
import { clamp } from "./dom.js";

const SHORTEST = 72; // pixels of a block, at least
export const EDGE = { begin: 188, end: 158 }; // what stands before the blocks, and after them
export const BEFORE = { picture: 30, patches: 90, tokens: 150 }; // pixels along, of what stands before the blocks
export const AFTER = { classifier: 46, answer: 122 }; // and after their end
const PICTURE = 54; // pixels of a picture
const NEAREST = 26; // pixels across, from the stream to the first head
const FOR_NAMES = 48; // pixels across, beyond the heads: names of parts and blocks stand there
const BELOW = 38; // pixels across, below the stream
const ALL_HEADS = 120; // pixels of all heads together
const HEAD = [16, 28]; // pixels of one, at least and at most
const FOR_ATTENTION = 75; // pixels of a block: its attention and its name, without the MLP
const AFTER_BLOCKS = 34; // pixels along, that are shown after the blocks before the classifier is told of
// Along a block, as fractions of it: where lines leave the stream, pass heads or the MLP, and come back to it.
const AT = { in: 0.04, heads: 0.3, middle: 0.56, mlpIn: 0.62, mlp: 0.79, out: 0.98, next: 1.04 };

// How large the parts are: "along" the way through the model, and "across" it, from the stream of tokens.
export function planOf({ L, h }, width) {
  const head = clamp(ALL_HEADS / h, ...HEAD);
  const block = Math.max(SHORTEST, (width - EDGE.begin - EDGE.end) / L);
  const top = NEAREST + h * head; // where the heads end
  const across = top + FOR_NAMES;
  return {
    head,
    block,
    top,
    across,
    place: (a, c) => [a, across - c],
    size: [EDGE.begin + L * block + EDGE.end, across + BELOW],
    heads: [...Array(h).keys()],
    blocks: [...Array(L).keys()],
  };
}

// Where a head is: the first is the uppermost.
const acrossOf = ({ head, heads }, i) => NEAREST + (heads.length - 0.5 - i) * head;

// A line that leaves and arrives along the way.
function curve({ place }, [a, c], [toA, toC]) {
  const middle = (a + toA) / 2;
  const points = [place(a, c), place(middle, c), place(middle, toC), place(toA, toC)].map(([x, y]) => `${x} ${y}`);
  return `M ${points[0]} C ${points.slice(1).join(", ")}`;
}

// The lines within a block: {d, parts: it is cut where one of these is off}.
function blockLines(plan, layer) {
  const { block, heads, top } = plan;
  const a = EDGE.begin + layer * block;
  const at = (fraction) => a + fraction * block;
  const name = `blocks.${layer}`;
  const attention = [name, `${name}.attention`];
  const line = (from, to, parts = []) => ({ d: curve(plan, from, to), parts });
  const toHeads = heads.flatMap((i) => {
    const parts = [...attention, `${name}.attention.heads.${i}`];
    const atHead = [at(AT.heads), acrossOf(plan, i)];
    return [line([at(AT.in), 0], atHead, parts), line(atHead, [at(AT.middle), 0], parts)];
  });
  const mlp = [name, `${name}.mlp`];
  const atMlp = [at(AT.mlp), (NEAREST + top) / 2];
  return [
    line([at(AT.in), 0], [at(AT.middle), 0], [`${name}.attention.residual`]),
    line([at(AT.middle), 0], [at(AT.mlpIn), 0]),
    line([at(AT.mlpIn), 0], [at(AT.out), 0], [`${name}.mlp.residual`]),
    line([at(AT.out), 0], [at(AT.next), 0]),
    ...toHeads,
    line([at(AT.mlpIn), 0], atMlp, mlp),
    line(atMlp, [at(AT.out), 0], mlp),
  ];
}

export function linesOf(plan) {
  const end = EDGE.begin + plan.blocks.length * plan.block;
  const line = (from, to) => ({ d: curve(plan, [from, 0], [to, 0]), parts: [] });
  const ends = [
    line(BEFORE.picture, BEFORE.patches),
    line(BEFORE.patches, BEFORE.tokens),
    line(BEFORE.tokens, EDGE.begin + AT.in * plan.block),
    line(end + AT.in * plan.block, end + AFTER.classifier),
    line(end + AFTER.classifier, end + AFTER.answer),
  ];
  return [...ends, ...plan.blocks.flatMap((layer) => blockLines(plan, layer))];
}

// How far along the diagram is shown while the story is at a station.
export function reachOf({ block, blocks }, station) {
  const { begin } = EDGE;
  const ends = {
    patches: (BEFORE.picture + BEFORE.patches) / 2,
    embedding: (BEFORE.patches + BEFORE.tokens) / 2,
    positions: begin,
    attention: begin + Math.max(AT.mlpIn * block, FOR_ATTENTION),
    mlp: begin + block,
  };
  return ends[station] ?? (station === "layers" ? begin + blocks.length * block + AFTER_BLOCKS : Infinity);
}

// The parts within a block that can be opened, or cut: {a, c, w, h, text, part, label, to}.
function blockParts(plan, layer) {
  const { block, head, heads, top } = plan;
  const at = (fraction) => EDGE.begin + (layer + fraction) * block;
  const name = `blocks.${layer}`;
  const one = (along, c, w, h, text, part, label, to) => {
    return { a: at(along), c, w, h, text, part: name + part, label: blockName(layer) + label, to, layer };
  };
  const parts = heads.map((i) => {
    const side = head - 3;
    const [part, label] = [`.attention.heads.${i}`, `, ${headName(i)}`];
    return { ...one(AT.heads, acrossOf(plan, i), side, side, "", part, label, "attention"), head: i };
  });
  const middle = Math.max(0.34, 38 / block); // of the word attention, which needs room
  return [
    one(0.5, top + 36, 70, 21, blockName(layer), "", "", "attention"),
    one(middle, top + 12, 70, 21, "attention", ".attention", ", attention", "attention"),
    ...parts,
    one(AT.heads, 0, 31, 20, "+ z", ".attention.residual", ", shortcut beside attention", "attention"),
    one(AT.mlp, (NEAREST + top) / 2, 31, 44, "MLP", ".mlp", ", MLP", "mlp"),
    one(AT.mlp, 0, 31, 20, "+ z′", ".mlp.residual", ", shortcut beside the MLP", "mlp"),
  ];
}

// The ground that a block's parts stand on, as a rectangle of an SVG.
export function frameOf({ place, block, top }, layer) {
  const [x, y] = place(EDGE.begin + (layer + 0.03) * block, top + FOR_NAMES);
  return { x, y, width: 0.96 * block, height: top + FOR_NAMES + 12, rx: 7 };
}

export function partsOfMap(plan) {
  const end = EDGE.begin + plan.blocks.length * plan.block;
  const one = (a, text, label, to, look) => ({ a, c: 0, w: PICTURE, h: PICTURE, text, label, to, look });
  const under = { c: -25, w: Math.min(64, plan.block - 22), h: 21, text: "", to: "layers" };
  const lenses = [0, ...plan.blocks.map((layer) => layer + 1)].map((step) => {
    const label = step ? `the answer after ${blockName(step - 1)}` : "the answer after the embedding";
    return { ...under, a: EDGE.begin + step * plan.block + (step ? 0 : 20), label, step };
  });
  return [
    one(BEFORE.picture, "", "the picture, in patches", "patches", "picture"),
    one(BEFORE.patches, "E", "patches, linear embedding", "embedding", "patches"),
    one(BEFORE.tokens, "", "tokens and positions", "positions", "tokens"),
    ...plan.blocks.flatMap((layer) => blockParts(plan, layer)),
    ...lenses,
    { ...one(end + AFTER.classifier, "classifier", "the classifier", "head"), w: 74, h: 28 },
    { ...one(end + AFTER.answer, "", "the answer", "head", "answer"), w: 62, h: 60 },
  ];
}
