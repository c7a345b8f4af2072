"""Works for the exercises of lesson 18: right ones, in different ways, and wrong ones."""

import torch
from submissions import Wrong

NUMBERS = {
    "float32": 100,
    "int8": 40,
    "levels": 15,
    "scale": 2,
    "code": 15,
    "error": 1,
    "zero": 3,
    "rows": 504,
    "throughput": 400,
}


def rows_by_broadcasting(weight, bits):
    scale = weight.abs().amax(dim=1, keepdim=True) / (2 ** (bits - 1) - 1)
    scale[scale == 0] = 1
    return (weight / scale).round().int(), scale


def rows_by_loop(weight, bits):
    codes, scales = [], []
    for row in weight:
        s = max(abs(float(x)) for x in row) / (2 ** (bits - 1) - 1) or 1.0
        codes.append([round(float(x) / s) for x in row])
        scales.append([s])
    return torch.tensor(codes), torch.tensor(scales)


def zero_by_clamp(x, bits):
    low, high = x.min().clamp(max=0), x.max().clamp(min=0)
    scale = (high - low) / (2**bits - 1)
    zero = (-low / scale).round()
    return ((x / scale).round() + zero).clamp(0, 2**bits - 1), scale, zero


def zero_by_python(x, bits):
    low, high = min(0.0, float(x.min())), max(0.0, float(x.max()))
    scale = (high - low) / (2**bits - 1)
    zero = round(-low / scale)
    codes = torch.tensor([round(float(v) / scale) + zero for v in x.flatten()]).reshape(x.shape)
    return codes.clamp(0, 2**bits - 1), scale, zero


def layer_with_correction(x, s_x, zero, weight, s_w, bias):
    x, weight = x.int(), weight.int()
    return (x @ weight.T - zero * weight.sum(dim=1)) * s_x * s_w + bias


def layer_before_the_sum(x, s_x, zero, weight, s_w, bias):
    return (x.long() - zero) @ weight.long().T * (s_x * s_w[None]) + bias


def packed_by_slices(codes):
    up = codes.int() + 8
    return (up[:, ::2] + 16 * up[:, 1::2]).to(torch.uint8)


def packed_by_shifts(codes):
    up = (codes + 8).to(torch.uint8)
    return up[:, ::2] | (up[:, 1::2] << 4)


def scales_flat(weight, bits):
    codes, scale = rows_by_broadcasting(weight, bits)
    return codes, scale.flatten()


def in_place(weight, bits):
    codes, scale = rows_by_broadcasting(weight.mul_(2), bits)
    return codes, scale / 2


def zero_in_floats(x, bits):
    codes, scale, zero = zero_by_clamp(x, bits)
    return codes, scale, -zero * scale


def answered(question, *answers):
    """A wrong work for each answer to a question."""
    return [Wrong(f"{question}: {x}", lambda x=x: NUMBERS | {question: x}) for x in answers]


RIGHT = {
    "shipping_numbers": (lambda: NUMBERS,),
    "quantise_rows": (rows_by_broadcasting, rows_by_loop),
    "with_zero_point": (zero_by_clamp, zero_by_python),
    "integer_layer": (layer_with_correction, layer_before_the_sum),
    "packed": (packed_by_slices, packed_by_shifts),
}

WRONG = {
    "shipping_numbers": [
        *answered("float32", 25, 104.9),
        *answered("int8", 45, 100),
        *answered("levels", 8, 256),
        *answered("scale", 127, 2.01),
        *answered("code", 14, 16),
        *answered("error", 127),
        *answered("zero", 4, 12),
        *answered("rows", 4, 501),
        *answered("throughput", 640),
    ],
    "quantise_rows": [
        Wrong("scales (out,)", scales_flat, "has shape"),
        Wrong("in place", in_place, "changed in place"),
    ],
    "with_zero_point": [
        Wrong("the zero as a value", zero_in_floats),
    ],
    "integer_layer": [
        Wrong("turned", lambda *args: layer_with_correction(*args).T, "has shape"),
    ],
    "packed": [
        Wrong("as wide as before", lambda codes: codes.int() + 8, "has shape"),
    ],
}
