"""The keys and values of a transformers cache as a file that `headspan archive encode` reads, and caches of what comes back."""
import torch
from safetensors.torch import load_file, save_file
from transformers import DynamicCache


def save_cache(cache, path):
    """Writes keys and values of the one sequence of `cache` to a safetensors file: "k" and "v", [layer, head, token, d].

    Raises ValueError for a cache of several sequences, and for one that has let go of tokens, as a sliding window does.
    """
    tensors = {}
    for name, attribute in (("k", "keys"), ("v", "values")):
        layers = [getattr(layer, attribute) for layer in cache.layers]
        if any(layer.shape[0] != 1 for layer in layers):
            raise ValueError(f"the cache holds {layers[0].shape[0]} sequences; an archive is of one")
        if any(layer.shape[2] != cache.get_seq_length() for layer in layers):
            raise ValueError("the cache does not hold every token in every layer")
        tensors[name] = torch.cat(layers).contiguous().cpu()
    save_file(tensors, path)


def load_cache(source, dtype=None, device=None):
    """Returns a DynamicCache of what `headspan archive decode` wrote to a safetensors file, or of what Archive.decode returned.
    dtype: that of the model, if it is not that of the numbers."""
    tensors = {name: torch.as_tensor(values) for name, values in (source if isinstance(source, dict) else load_file(source)).items()}
    cache = DynamicCache()
    for layer, (k, v) in enumerate(zip(tensors["k"], tensors["v"])):
        cache.update(k[None].to(device, dtype), v[None].to(device, dtype), layer)
    return cache
