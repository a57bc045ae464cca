"""HeadspanCache for transformers: generate(), pipelines, and every model whose attention takes a Cache."""
from transformers.cache_utils import Cache, CacheLayerMixin

from .plan import read_plan
from .store import StreamStore


class HeadspanLayer(CacheLayerMixin):
    """Keys and values of one layer. `update` returns what is stored, also of the new tokens: a cache that returned these as
    they came would show no loss where a text is read in one chunk."""

    is_sliding = False
    is_croppable = True

    def __init__(self, plan, layer, earlier):
        super().__init__()
        self.stores = [StreamStore(plan, stream, layer, [one.stores[i] for one in earlier]) for i, stream in enumerate("kv")]

    def lazy_initialization(self, key_states, value_states):
        for store, x in zip(self.stores, (key_states, value_states)):
            store.start(x.transpose(1, 2))
        self.is_initialized = True

    def update(self, key_states, value_states, *args, **kwargs):
        """Takes and returns keys and values, [batch, kv_heads, tokens, d]."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        for store, x in zip(self.stores, (key_states, value_states)):
            store.append(x.transpose(1, 2))
        return tuple(store.read().transpose(1, 2) for store in self.stores)

    def get_mask_sizes(self, query_length):
        return self.get_seq_length() + query_length, 0

    def get_seq_length(self):
        return self.stores[0].tokens

    def get_max_length(self):
        return -1

    def get_max_cache_shape(self):  # the name before transformers 5.24
        return -1

    def reset(self):
        for store in self.stores:
            store.format = None
        self.is_initialized = False

    def crop(self, tokens):
        """Removes that many of the last tokens (negative), or keeps that many (positive)."""
        for store in self.stores:
            store.crop(tokens if tokens > 0 else max(0, store.tokens + tokens))

    def reorder_cache(self, beam_idx):
        self.batch_select_indices(beam_idx)

    def batch_select_indices(self, indices):
        for store in self.stores:
            store.select(lambda x: x[indices.to(x.device)])

    def batch_repeat_interleave(self, repeats):
        for store in self.stores:
            store.select(lambda x: x.repeat_interleave(repeats, 0))


class HeadspanCache(Cache):
    """The compressed cache of a plan. Tokens that begin a document in the middle of a sequence are stored like others, which
    `headspan evaluate` keeps exactly: a cache of transformers is not told the ids of tokens."""

    def __init__(self, plan):
        layers = []
        for layer in range(plan.layers):
            layers.append(HeadspanLayer(plan, layer, list(layers)))
        super().__init__(layers=layers)
        self.plan = plan

    @classmethod
    def from_plan(cls, path):
        """Makes an empty cache from the file that `headspan calibrate` wrote. One cache serves one batch."""
        return cls(read_plan(path))

    @property
    def nbytes(self):
        """Bytes that are held for all sequences, layers and both streams."""
        return sum(store.nbytes for layer in self.layers for store in layer.stores)
