// How much of the followed token flows where: the lengths that the map's lines are as wide as.

import { norm, rowOf } from "./cells.js";

// What a head adds to the token: its sums times its columns of the last matrix.
function addedBy(sums, { weight }, head, { D, d }) {
  return Float64Array.from({ length: D }, (_, row) => {
    let sum = 0;
    for (let i = 0; i < d; i++) sum += weight[row * D + head * d + i] * sums[i];
    return sum;
  });
}

// Whether the classifier reads a token.
export const isRead = ({ pool }, token) => token === 0 || pool !== "cls";

// {place on the map: the root of the length}, 1 for the longest, so that short ones are seen, too. The places:
// "0.input", "0.head 1", "0.middle", "0.mlp", "0.out", ..., and "read".
export function streamOf({ weights, config }, scene) {
  const { run, token, D, d } = scene;
  const lengths = {};
  run.blocks.forEach((block, layer) => {
    const length = (x) => norm(rowOf(x, token, D));
    lengths[`${layer}.input`] = length(block.input);
    block.attention.heads.forEach(({ sums }, head) => {
      const added = addedBy(rowOf(sums, token, d), weights.blocks[layer].attention.proj, head, scene);
      lengths[`${layer}.head ${head}`] = norm(added);
    });
    lengths[`${layer}.middle`] = length(scene.isBlockOn(layer) ? block.middle : block.input);
    lengths[`${layer}.mlp`] = length(block.mlp.out);
    lengths[`${layer}.out`] = length(block.out);
  });
  lengths.read = isRead(config, token) ? norm(rowOf(run.blocks.at(-1).out, token, D)) : 0;
  const most = Math.max(...Object.values(lengths)) || 1;
  return Object.fromEntries(Object.entries(lengths).map(([name, length]) => [name, Math.sqrt(length / most)]));
}
