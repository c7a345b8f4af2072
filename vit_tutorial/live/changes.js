// What can be changed about the model and its patches, and how the page names it.

export const AS_TRAINED = {
  off: [], // names of parts: blocks.1, blocks.1.attention, blocks.1.attention.heads.0, blocks.1.mlp.residual, ...
  scale: true,
  temperature: 1, // of attention
  position: "learned",
  order: null, // which patch is in each place
  hidden: [], // patches
  learned: null, // which state of its training it is in; null: the end
};

// The same changes, without an order that leaves each patch in its place.
export const tidied = (changes) =>
  changes.order?.every((from, n) => from === n) ? { ...changes, order: null } : changes;

export const toggled = (list, one) => (list.includes(one) ? list.filter((other) => other !== one) : [...list, one]);

export const isArranged = ({ order, hidden }) => Boolean(order || hidden.length); // its patches

export const isChanged = (changes) => JSON.stringify(changes) !== JSON.stringify(AS_TRAINED);

// Blocks and heads are counted from 1, as in the lessons; patches, tokens and numbers from 0.
export const blockName = (layer) => `block ${Number(layer) + 1}`;
export const headName = (head) => `head ${Number(head) + 1}`;

// blocks.1.attention.heads.0 -> head 1 of block 2
function partName(name) {
  const [, layer, part, inner, head] = name.split(".");
  const what = part === "mlp" ? "MLP" : "attention";
  const block = blockName(layer);
  if (!part) return block;
  if (!inner) return `${what} of ${block}`;
  if (inner === "heads") return `${headName(head)} of ${block}`;
  return `the shortcut beside the ${what} of ${block}`;
}

export function describe({ off, scale, temperature, position, order, hidden, learned }, states) {
  const words = off.map((name) => `${partName(name)} off`);
  if (!scale) words.push("scores not divided by √d");
  if (temperature !== 1) words.push(`attention’s temperature ${temperature}`);
  if (position !== "learned") words.push(position === "none" ? "no positions" : "positions reversed");
  if (order) words.push(new Set(order).size < order.length ? "patches repeated" : "patches moved");
  if (hidden.length) words.push(`${hidden.length === 1 ? `patch ${hidden[0]}` : `${hidden.length} patches`} hidden`);
  if (learned !== null) words.push(`as it was after ${states[learned].name}`);
  return words;
}

// Patches in a new order, all of them, in a model to which they are a bag.
export const isInvisible = ({ position, order, hidden }, count) =>
  position === "none" && order && new Set(order).size === count && !hidden.length;

// What a station says of its part, "attention" or "mlp", where that is switched off; "" where it is on.
export function whatIsOff({ layer, isOn }, part) {
  const what = part === "mlp" ? "MLP" : "attention";
  const before = part === "mlp" ? "z′" : "z";
  const after = part === "mlp" ? "z" : "z′";
  const block = blockName(layer);
  if (!isOn("")) return `All of ${block} is switched off: every token leaves it as it came in.`;
  if (isOn(part)) return "";
  if (isOn(`${part}.residual`)) {
    return `The ${what} of ${block} is switched off, so it adds nothing: ${after} = ${before}.`;
  }
  return `The ${what} of ${block} is switched off, and so is the shortcut beside it: ${after} is all zeros.`;
}
