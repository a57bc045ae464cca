"""What a plan stores of one stream in one layer, for a batch of sequences, and the keys or values that it reads back.
PyTorch alone; cache.py makes a cache of transformers of it."""
import torch

from .plan import HEADS, normal_levels
from .records import RecordFormat


class StreamStore:
    """Grows by tokens. `earlier`: the stores of the same stream in earlier layers, which heads may be read from."""

    def __init__(self, plan, stream, layer, earlier=()):
        self.plan, self.block, self.layer, self.earlier = plan, plan.block(stream, layer), layer, earlier
        self.keeps_heads = plan.algorithm in HEADS and not self.block.whole
        self.format = self.exact = self.records = None
        self.maps = {}

    @property
    def tokens(self):
        return 0 if self.format is None else self.exact.shape[1] + self.records.shape[1]

    @property
    def nbytes(self):
        return 0 if self.format is None else self.exact.nbytes + self.records.nbytes

    def start(self, x):
        """Makes empty stores for batches like x: [batch, tokens, kv_heads, d]."""
        block, batch = self.block, len(x)
        if x.shape[2:] != (self.plan.kv_heads, self.plan.head_size):
            raise ValueError(f"{self.plan.path} is for {self.plan.kv_heads} heads of {self.plan.head_size} columns, and the "
                             f"model has {x.shape[2]} of {x.shape[3]}")
        compute = torch.float64 if x.dtype == torch.float64 else torch.float32
        levels = {bits: normal_levels(bits) for _, bits in block.bands} if block.coding == "normal" else None
        self.format = RecordFormat(block.bands, block.coding, x.dtype, block.clip, block.arrays.get("weights"), levels)
        self.maps = {name: values.to(x.device, compute) for name, values in block.arrays.items() if values.dtype.is_floating_point}
        rotation = self.plan.rotation(block)
        if rotation is not None:
            self.maps["rotation"] = rotation.to(x.device, compute)
        self.compute = compute
        self.exact = x[:, :0].clone()
        self.records = self.format.pack(torch.zeros(batch, 0, self.format.columns, dtype=compute, device=x.device))

    def append(self, x):
        """x: [batch, tokens, kv_heads, d]."""
        if self.format is None:
            self.start(x)
        first = max(0, min(x.shape[1], self.plan.exact_first - self.exact.shape[1]))
        self.exact = torch.cat([self.exact, x[:, :first]], 1)
        self.records = torch.cat([self.records, self.format.pack(self.encode(x[:, first:].to(self.compute)))], 1)

    def read(self):
        """Returns all tokens, [batch, tokens, kv_heads, d], in the type that they came in."""
        return torch.cat([self.exact, self.decode().to(self.exact.dtype)], 1)

    def select(self, change):
        """Replaces what is stored by change(it): [batch, ...]."""
        if self.format is not None:
            self.exact, self.records = change(self.exact).contiguous(), change(self.records).contiguous()

    def crop(self, tokens):
        """Forgets all tokens but the first ones."""
        if self.format is not None:
            first = self.exact.shape[1]
            self.exact, self.records = self.exact[:, :tokens].clone(), self.records[:, :max(0, tokens - first)].clone()

    def encode(self, x):
        maps = self.maps
        if self.keeps_heads:
            return x[:, :, self.block.arrays["kept"].to(x.device)].flatten(2)
        if "projection" in maps:
            return (x.flatten(2) - maps["mean"]) @ maps["projection"]
        return torch.einsum("bthi,hij->bthj", x, maps["rotation"]).flatten(2) if "rotation" in maps else x.flatten(2)

    def columns(self):
        """Returns the stored columns, [batch, stored tokens, columns]."""
        return self.format.unpack(self.records, self.compute)

    def decode(self):
        z, d, maps = self.columns(), self.plan.head_size, self.maps
        if self.keeps_heads:
            return self.predict(z.unflatten(-1, (-1, d)))
        if "projection" in maps:
            return (z @ maps["lift"] + maps["bias"]).unflatten(-1, (-1, d))
        heads = z.unflatten(-1, (-1, d))
        return torch.einsum("bthj,hij->bthi", heads, maps["rotation"]) if "rotation" in maps else heads

    def predict(self, kept):
        """Returns all heads from the kept ones: [batch, tokens, kept heads, d]."""
        arrays, d, heads = self.block.arrays, self.plan.head_size, self.plan.kv_heads
        out = kept.new_zeros(*kept.shape[:2], heads, d)
        out[:, :, arrays["kept"]] = kept
        for t, target in enumerate(arrays["targets"].tolist()):
            out[:, :, target] = self.maps["bias"][t]
            for i, head in enumerate(arrays["references"][t].tolist()):
                if head >= 0:
                    out[:, :, target] += self.stored_head(head, kept) @ self.maps["map"][t, i * d:(i + 1) * d]
        return out

    def stored_head(self, head, kept):
        """Returns a kept head of this layer or an earlier one, numbered over the layers: [batch, tokens, d]."""
        layer, head = divmod(head, self.plan.kv_heads)
        store = self if layer == self.layer else self.earlier[layer]
        index = store.block.arrays["kept"].tolist().index(head)
        return (kept if store is self else store.columns().unflatten(-1, (-1, self.plan.head_size)))[:, :, index]
