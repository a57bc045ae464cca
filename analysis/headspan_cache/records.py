"""The record of a token in a layer of one stream: which bytes hold its stored columns. The same bytes as the program's
(src/model/cache/record_format.h has the formulas), but for groups of tokens."""
import torch

NORMAL_STEPS = {1: 1.5958, 2: 0.9957, 3: 0.5860, 4: 0.3352, 5: 0.1881, 6: 0.1041, 7: 0.0569, 8: 0.0308}
GAIN_MULTIPLES = [2 ** (quarter / 4) for quarter in range(-2, 6)]
LARGEST_HALF = 65504.0


class RecordFormat:
    """bands: [(columns, bits)], 16 bits meaning numbers of the type `plain`; coding: symmetric, range, gguf, gain or normal;
    weights: [columns], with gain; levels: those of normal."""

    def __init__(self, bands, coding, plain, clip=1.0, weights=None, levels=None):
        self.bands, self.coding, self.plain, self.clip = bands, coding, plain, clip
        self.weights, self.levels = weights, levels

    @property
    def columns(self):
        return sum(columns for columns, _ in self.bands)

    def pack(self, z):
        """Returns the records of z: [..., columns], as [..., bytes]."""
        parts, begin = [], 0
        gain = self.gain_of(z) if self.coding == "gain" and self.bands else None
        for number, (columns, bits) in enumerate(self.bands):
            part = z[..., begin:begin + columns]
            begin += columns
            if bits == 16:
                parts.append(as_bytes(part.to(self.plain)))
            else:
                scales, codes = self.quantise(part, bits, gain)
                parts += [as_bytes(scales)] * (gain is None or number == 0) + [packed(codes, bits)]
        return torch.cat(parts, -1) if parts else z.new_empty(*z.shape[:-1], 0, dtype=torch.uint8)

    def unpack(self, records, dtype):
        """Returns [..., columns] in `dtype`."""
        parts, begin = [], 0
        for number, (columns, bits) in enumerate(self.bands):
            if bits == 16:
                count = columns * self.plain.itemsize
                parts.append(numbers(records[..., begin:begin + count], self.plain).to(dtype))
                begin += count
                continue
            if self.coding != "gain" or number == 0:
                count = 4 if self.coding == "range" else 2
                scales = numbers(records[..., begin:begin + count], torch.float16).float()
                begin += count
            count = (columns * bits + 7) // 8
            codes = unpacked(records[..., begin:begin + count], bits, columns)
            begin += count
            parts.append(self.levels_of(codes, scales, bits, dtype))
        return torch.cat(parts, -1) if parts else records.new_empty(*records.shape[:-1], 0, dtype=dtype)

    def quantise(self, z, bits, gain):
        """Returns (scales in float16, codes) of one band."""
        if self.coding == "normal":
            return self.to_levels(z, bits)
        scales = gain if gain is not None else self.scales_of(z.double(), bits)
        base, step = self.base_and_step(scales.float(), bits)
        base, step = base.double(), step.double()
        inverse = torch.where(step != 0, 1 / step, torch.zeros_like(step))
        return scales, ((z.double() - base) * inverse).clamp(0, 2**bits - 1).round().to(torch.uint8)

    def scales_of(self, z, bits):
        low, high = self.clip * z.amin(-1, keepdim=True), self.clip * z.amax(-1, keepdim=True)
        if self.coding == "range":
            return torch.cat([half(low), half((high - low) / (2**bits - 1))], -1)
        magnitude = torch.maximum(low.abs(), high.abs())
        if self.coding == "symmetric":
            return half(magnitude / (2 ** (bits - 1) - 0.5))
        return half(magnitude / 127 if bits == 8 else torch.where(high > -low, -magnitude, magnitude) / 2 ** (bits - 1))

    def base_and_step(self, scales, bits):
        """Code k stands for base + k step. scales: [..., 1 or 2], float32."""
        if self.coding == "range":
            return scales[..., :1], scales[..., 1:]
        lowest = (0 if self.coding == "gguf" else 0.5) - 2 ** (bits - 1)
        return scales * lowest, scales

    def to_levels(self, z, bits):
        levels = self.levels[bits].to(z.device)
        squares = z.double().square().sum(-1, keepdim=True)
        inverse = torch.where(squares > 0, (z.shape[-1] / squares).sqrt(), torch.zeros_like(squares))
        unit = (z.double() * inverse).float().contiguous()
        above = torch.searchsorted(levels[1:-1].contiguous(), unit, right=True) + 1
        codes = above - (unit - levels[above - 1] < levels[above] - unit).long()
        return half((squares / levels[codes].double().square().sum(-1, keepdim=True)).sqrt()), codes.to(torch.uint8)

    def levels_of(self, codes, scales, bits, dtype):
        if self.coding == "normal":
            return self.levels[bits].to(codes.device)[codes.long()].to(dtype) * scales.to(dtype)
        base, step = self.base_and_step(scales, bits)
        return base.to(dtype) + codes.to(dtype) * step.to(dtype)

    def gain_of(self, z):
        """Returns the gain of each record that loses least, [..., 1] in float16."""
        steps = torch.tensor([NORMAL_STEPS[bits] for columns, bits in self.bands for _ in range(columns)], dtype=torch.float64)
        halves = torch.tensor([2.0 ** (bits - 1) for columns, bits in self.bands for _ in range(columns)], dtype=torch.float64)
        steps, halves, wide = steps.to(z.device), halves.to(z.device), z.double()
        mean = (wide * steps).square().mean(-1, keepdim=True).sqrt()
        gains = [half(multiple * mean) for multiple in GAIN_MULTIPLES]
        errors = []
        for gain in gains:
            step = gain.double()
            inverse = torch.where(step != 0, 1 / step, torch.zeros_like(step))
            codes = (wide * inverse + halves - 0.5).round().clamp(torch.zeros_like(halves), 2 * halves - 1)
            errors.append(((wide - (codes + 0.5 - halves) * step).square() * self.weights.to(z.device)).sum(-1, keepdim=True))
        return torch.cat(gains, -1).gather(-1, torch.cat(errors, -1).argmin(-1, keepdim=True))


def half(x):
    """Rounds to float16 through float32, as the program does."""
    return x.clamp(-LARGEST_HALF, LARGEST_HALF).float().half()


def numbers(part, dtype):
    """Returns the numbers of `dtype` that some bytes of records hold. A single record counts as contiguous with any stride, so
    that contiguous() would not move it."""
    return part.clone(memory_format=torch.contiguous_format).view(dtype)


def as_bytes(x):
    return x.contiguous().view(torch.uint8)


def packed(codes, bits):
    """Returns codes: [..., columns] end to end, the lowest bit first, in whole bytes."""
    ones = (codes.unsqueeze(-1) >> torch.arange(bits, device=codes.device)) & 1
    ones = ones.flatten(-2)
    ones = torch.nn.functional.pad(ones, (0, -ones.shape[-1] % 8)).unflatten(-1, (-1, 8))
    return (ones << torch.arange(8, device=codes.device)).sum(-1).to(torch.uint8)


def unpacked(stored, bits, columns):
    ones = ((stored.unsqueeze(-1) >> torch.arange(8, device=stored.device)) & 1).flatten(-2)[..., :columns * bits]
    return (ones.unflatten(-1, (columns, bits)) << torch.arange(bits, device=stored.device)).sum(-1).to(torch.uint8)
