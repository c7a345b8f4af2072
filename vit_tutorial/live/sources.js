// Where a number comes from: what stands before its "=", and which numbers of the station's other cells light up.
// {text, sourceCells: {name of the cells: [first, last]}}, for number i.

import { digits, rowOf } from "./cells.js";

const all = (values) => [0, values.length - 1];
const bracketed = (value) => (value < 0 ? `(${digits(value)})` : digits(value));

// A sum of lists, number by number: parts are [name of the cells, what they are called, their values].
export function sumOf(...parts) {
  return (i) => ({
    text: parts.map(([, called, values]) => `${called} ${bracketed(values[i])}`).join(" + "),
    sourceCells: Object.fromEntries(parts.map(([name]) => [name, [i, i]])),
  });
}

// A layer norm of a list, the cells named so.
export function normOf(name, values, { weight, bias }, eps) {
  const mean = values.reduce((sum, v) => sum + v, 0) / values.length;
  const variance = values.reduce((sum, v) => sum + (v - mean) ** 2, 0) / values.length;
  const scale = digits(Math.sqrt(variance + eps));
  return (i) => ({
    text: `(${digits(values[i])} − ${bracketed(mean)}) ÷ ${scale} · ${bracketed(weight[i])} + ${bracketed(bias[i])}`,
    sourceCells: { [name]: [i, i] },
  });
}

// A row of a matrix times a list: of matrix, its row number i + first.
export function productOf(name, values, { weight, bias }, first = 0) {
  return (i) => {
    const start = (first + i) * values.length;
    const [most] = [...values.keys()].sort(
      (a, b) => Math.abs(values[b] * weight[start + b]) - Math.abs(values[a] * weight[start + a]),
    );
    const term = `${bracketed(values[most])} · ${bracketed(weight[start + most])}`;
    const rest = values.length > 1 ? ` + ${values.length - 1} more products` : "";
    return {
      text: `${term}${rest}${bias ? ` + ${bracketed(bias[first + i])}` : ""}`,
      sourceCells: { [name]: all(values) },
    };
  };
}

// The chosen token's sums, of all tokens' values by weight; v: (T, d).
export function weightedSum(weights, v, d, tokenName) {
  const order = [...weights.keys()].sort((a, b) => weights[b] - weights[a]);
  const some = order.slice(0, 2);
  return (i) => ({
    text: `${some
      .map((t) => `${digits(weights[t])} · ${bracketed(rowOf(v, t, d)[i])} (${tokenName(t)})`)
      .join(" + ")}${order.length > 2 ? ` + ${order.length - 2} more tokens` : ""}`,
    sourceCells: {},
  });
}

// A softmax of a list; written out where every step is shown.
export function softmaxOf(name, values, isFine) {
  const sum = values.reduce((all, v) => all + Math.exp(v), 0);
  return (i) => ({
    text: isFine ? `e^(${digits(values[i])}) ÷ ${digits(sum)}` : "",
    sourceCells: { [name]: [i, i] },
  });
}
