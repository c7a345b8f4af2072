// What can be changed about the model and its patches, and how the page names it.

export const AS_TRAINED = {
  off: [], // names of parts: blocks.1, blocks.1.attention, blocks.1.attention.heads.0, blocks.1.mlp.residual, ...
  scale: true,
  temperature: 1, // of attention
  position: "learned",
  answer: 1, // its temperature
  order: null, // which patch is in each place
  hidden: [], // patches
};
const POSITIONS = ["learned", "none", "reversed"];

// The same changes, without an order that leaves each patch in its place.
export const tidied = (changes) =>
  changes.order?.every((from, n) => from === n) ? { ...changes, order: null } : changes;

export const toggled = (list, one) => (list.includes(one) ? list.filter((other) => other !== one) : [...list, one]);

export const isArranged = ({ order, hidden }) => Boolean(order || hidden.length); // its patches

export const isChanged = (changes) => JSON.stringify(changes) !== JSON.stringify(AS_TRAINED);

// The names of all parts that can be switched off.
function partsOf({ depth, num_heads }) {
  const heads = Array.from({ length: num_heads }, (_, head) => `.attention.heads.${head}`);
  const parts = ["", ".attention", ".attention.residual", ".mlp", ".mlp.residual", ...heads];
  return Array.from({ length: depth }, (_, layer) => parts.map((part) => `blocks.${layer}${part}`)).flat();
}

// blocks.1.attention.heads.0 -> head 0 of block 1
export function partName(name) {
  const [, layer, part, inner, head] = name.split(".");
  const what = part === "mlp" ? "MLP" : "attention";
  if (!part) return `block ${layer}`;
  if (!inner) return `${what} of block ${layer}`;
  if (inner === "heads") return `head ${head} of block ${layer}`;
  return `the shortcut beside the ${what} of block ${layer}`;
}

export function describe({ off, scale, temperature, position, answer, order, hidden }) {
  const words = off.map((name) => `${partName(name)} off`);
  if (!scale) words.push("scores not divided by √d");
  if (temperature !== 1) words.push(`attention’s temperature ${temperature}`);
  if (position !== "learned") words.push(position === "none" ? "no positions" : "positions reversed");
  if (answer !== 1) words.push(`the answer’s temperature ${answer}`);
  if (order) words.push(new Set(order).size < order.length ? "patches repeated" : "patches moved");
  if (hidden.length) words.push(`${hidden.length === 1 ? `patch ${hidden[0]}` : `${hidden.length} patches`} hidden`);
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
  if (!isOn("")) return `Block ${layer} is switched off: every token leaves it as it came in.`;
  if (isOn(part)) return "";
  if (isOn(`${part}.residual`)) {
    return `The ${what} of block ${layer} is switched off, so it adds nothing: ${after} = ${before}.`;
  }
  return `The ${what} of block ${layer} is switched off, and so is the shortcut beside it: ${after} is all zeros.`;
}

// Whether changes that somebody else wrote can be made to this model.
export function fits(changes, config) {
  const { off, scale, temperature, position, answer, order, hidden } = changes;
  const parts = partsOf(config);
  const isPatch = (n) => Number.isInteger(n) && n >= 0 && n < config.patches;
  const isEachOnce = (list) => new Set(list).size === list.length;
  const isTemperature = (value) => typeof value === "number" && value >= 0.1 && value <= 10;
  const isOrder = Array.isArray(order) && order.length === config.patches && order.every(isPatch);
  return (
    Array.isArray(off) &&
    off.every((name) => parts.includes(name)) &&
    isEachOnce(off) &&
    typeof scale === "boolean" &&
    isTemperature(temperature) &&
    POSITIONS.includes(position) &&
    isTemperature(answer) &&
    (order === null || isOrder) &&
    Array.isArray(hidden) &&
    hidden.every(isPatch) &&
    isEachOnce(hidden)
  );
}
