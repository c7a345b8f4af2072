// What the pages' JSDoc names: numbers, layers, a model's sizes, a pass, and what a page works on.

/** A tensor, row by row; its shape stands at the end of its line. */
type Numbers = Float64Array;
/** Left, top, width, height. */
type Box = number[];
/** Rows, columns; or down, right. */
type Pair = number[];
/** Channels, height, width. */
type Shape = number[];

interface Layer {
  weight: Float32Array | Numbers;
  bias?: Float32Array;
}
/** A norm that a model hasn't is undefined. */
interface BlockWeights {
  norm1: Layer;
  attention: {
    qkv: Layer;
    q_norm?: Layer;
    k_norm?: Layer;
    position_bias?: Float32Array;
    norm?: Layer;
    proj: Layer;
  };
  norm2: Layer;
  mlp: { fc1: Layer; norm?: Layer; fc2: Layer };
}
interface PoolWeights {
  probe: Float32Array;
  q: Layer;
  kv: Layer;
  proj: Layer;
  norm: Layer;
  mlp: { fc1: Layer; fc2: Layer };
}
interface EmbedWeights {
  patches: { proj: Layer };
  cls_token?: Float32Array;
  position?: Float32Array;
  norm?: Layer;
}
/** The state dict as a tree. */
interface Weights {
  embed: EmbedWeights;
  blocks: BlockWeights[];
  norm?: Layer;
  pool?: PoolWeights;
  pool_norm?: Layer;
  head: Layer;
}

/** As live/page.py writes it. */
interface Config {
  dim: number;
  depth: number;
  num_heads: number;
  mlp_dim: number;
  num_classes: number;
  norm_eps: number;
  gelu: "exact" | "tanh" | "quick";
  gated: boolean;
  norm: "layer" | "rms";
  class_token: boolean;
  registers: number;
  position: string;
  pool: "cls" | "mean" | "distilled" | "cls+mean" | "attention";
  pool_prefix: boolean;
  pool_heads: number;
  shape: Shape;
  patch_size: Pair;
  grid: Pair;
  patches: number;
  prefix: number;
  tokens: number;
  /** What a cosine is multiplied by, in a model without classes; else null. */
  likeness: number | null;
  /** Of rotary positions, (T, d / 2) each. */
  angles: { cos: Float32Array; sin: Float32Array } | null;
  /** The row of a position bias for each query and key: (T, T). */
  offsets: Uint16Array | null;
  parameters: number;
}

interface Changes {
  off?: string[];
  scale?: boolean;
  temperature?: number;
  position?: "learned" | "none" | "reversed";
  answer?: number;
  order?: number[] | null;
  hidden?: number[];
}

interface Head {
  q: Numbers;
  k: Numbers;
  v: Numbers;
  scores: Numbers;
  scaled: Numbers;
  weights: Numbers;
  sums: Numbers;
}
interface BlockPass {
  input: Numbers;
  norm1: Numbers;
  attention: { heads: Head[]; joined: Numbers; out: Numbers };
  middle: Numbers;
  norm2: Numbers;
  mlp: { before: Numbers; hidden: Numbers; out: Numbers };
  out: Numbers;
}
interface EmbedPass {
  patches: Numbers;
  projected: Numbers;
  content: Numbers;
  position: Numbers | Float32Array;
  tokens: Numbers;
}
/** Every number of one image's way through the model. */
interface Pass {
  image: Numbers;
  embed: EmbedPass;
  blocks: BlockPass[];
  norm: Numbers;
  pooled: Numbers;
  logits: Numbers;
  probabilities: Numbers;
}

/** Where a number comes from: see live/sources.js. */
type Sources = (i: number) => { text?: string; lights?: Record<string, Pair> };
interface Cells {
  show(next: object): void;
  light(lit: Pair | null): void;
}

/** What is cut, opened or drawn: see live/context.js, and the make... functions of live/live.js for the rest. */
interface Page {
  config: Config;
  weights: Weights;
  sizes: Record<"C" | "H" | "W" | "rows" | "columns" | "D" | "L" | "h" | "M" | "T" | "N" | "prefix" | "d" | "length", number>;
  now: Pass;
  before: Pass;
  state: any;
  data: any;
  classes: string[];
  pad: any;
  $(selector: string): any;
  $$(selector: string): any[];
  tokenName(token: number): string;
  [more: string]: any;
}
