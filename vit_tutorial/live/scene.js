// What is shown of what is chosen: the pass, and in it the token, the block and the head that every station draws.

import { largestSize, rowOf } from "./cells.js";
import { weightsOf } from "./compute.js";
import { rearrange } from "./pictures.js";

const COLOURS = ["red", "green", "blue"];

// The hidden unit that a token excites most.
function mostActive({ mlp }, token, M) {
  const units = rowOf(mlp.before, token, M);
  return units.indexOf(Math.max(...units));
}

// Of a token and all that a block adds to it: one scale for their colours.
const mostInBlock = ({ input, attention, middle, mlp, out }, token, D) =>
  largestSize(...[input, attention.out, middle, mlp.out, out].map((rows) => rowOf(rows, token, D)));

function channelName(C, c) {
  if (C === 1) return "";
  return C === 3 ? `${COLOURS[c]}, ` : `channel ${c}, `;
}

export function sceneOf({ model, state, shown: { now, of } }) {
  const { sizes, config, classes, tokenName, theName } = model;
  const weights = weightsOf(model, of.changes);
  const { token, previous, layer, head, isFine } = state;
  const off = new Set(of.changes.off);
  const block = now.blocks[layer];
  return {
    ...sizes,
    model,
    config,
    classes,
    tokenName,
    theName,
    run: now,
    block,
    one: block.attention.heads[head],
    weights,
    own: weights.blocks[layer], // the chosen block's
    changes: of.changes,
    picture: rearrange(of.picture, model, of.changes),
    token,
    previous, // the token that was chosen before
    layer,
    head,
    patch: Math.max(token - sizes.prefix, 0),
    rowOfE: state.rowOfE, // whose sum is shown
    most: mostInBlock(block, token, sizes.D),
    unit: state.unit ?? mostActive(block, token, sizes.M),
    isFine,
    channel: (c) => channelName(sizes.C, c),
    isBlockOn: (number) => !off.has(`blocks.${number}`),
    isHeadOn: (number, one) =>
      ["", ".attention", `.attention.heads.${one}`].every((part) => !off.has(`blocks.${number}${part}`)),
    isOn: (part) => !off.has(part ? `blocks.${layer}.${part}` : `blocks.${layer}`), // of the chosen block
  };
}
