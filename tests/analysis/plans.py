"""Writes plans and summaries in the formats of headspan's calibrate and evaluate (src/io/README.md) with numbers that
the test chooses, and only what the page reads. The model has 3 layers, 4 KV heads of 2 columns, and 48 bytes per
token and stream."""
import json

import h5py
import numpy as np
from samples import write_done

LAYERS, KV_HEADS, HEAD_SIZE, BYTES_FULL = 3, 4, 2, 96
MODEL = "checkpoints/tiny/step7"


def write_run(folder, name, algorithm, stored, texts, bands=((8, 16),), kept=None, summary=None, decode=(30, 40),
              **attributes):
    """Writes NAME.h5, its .done and NAME.json. bands: (columns, bits) of each layer; kept: stream -> heads of each
    layer; group (an attribute): tokens that are quantised together; texts: stem -> (loss, its error, full loss, KL, its error)."""
    path = write_plan(folder, name, algorithm, stored, bands, kept, **attributes)
    write_summary(folder, name, stored, texts, decode, **(summary or {}))
    return path


def write_plan(folder, name, algorithm, stored, bands=((8, 16),), kept=None, group=1, **attributes):
    attributes = {"headspan_schema": "1.0", "title": f"Compression of the KV cache of {MODEL}",
                  "source": "headspan 0.1.0 (git sample)", "algorithm": algorithm, "scope": "causal", "streams": "k,v",
                  "stored": stored, "stored_asked": round(stored, 2), "bits": "auto", "model_type": "olmo2",
                  "config_sha256": "c0", "layers": LAYERS, "kv_heads": KV_HEADS, "head_size": HEAD_SIZE,
                  "bytes_full": float(BYTES_FULL), "bytes_stored": stored * BYTES_FULL,
                  "bytes_read": stored * BYTES_FULL, "exact_first": 4, "tokens_path": "there/docs.fit.bin"} | attributes
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.h5"
    with h5py.File(path, "w") as file:
        file.attrs.update({name: value for name, value in attributes.items() if value is not None})
        for stream in attributes["streams"].split(","):
            for layer in range(LAYERS):
                block = file.create_group(f"{stream}/{layer}")
                block.attrs["band_columns"], block.attrs["band_bits"] = np.array(bands).T
                if group > 1:
                    block.attrs["band_tokens"] = group
                if kept:
                    block["kept"] = np.array(kept[stream][layer])
    write_done(path)
    return path


def write_summary(folder, name, stored, texts, decode=(30, 40), **more):
    folder.mkdir(parents=True, exist_ok=True)
    found = {text: {"tokens": 1000, "loss": loss, "loss_se": error, "perplexity": float(np.exp(loss)),
                    "bits_per_byte": None, "full_loss": full, "dloss": loss - full, "dloss_se": error and error / 10,
                    "kl": kl, "kl_se": kl_error}
             for text, (loss, error, full, kl, kl_error) in texts.items()}
    summary = {"plan": f"elsewhere/{name}.h5", "cache": "compressed", "texts": found,
               "bytes_per_token": {"full": 2 * BYTES_FULL, "stored": 2 * BYTES_FULL * stored, "exact": 2 * BYTES_FULL},
               "tokens_per_second": {"prefill": 1, "decode": decode[0], "full_prefill": 1, "full_decode": decode[1]},
               } | more
    (folder / f"{name}.json").write_text(json.dumps(summary))


def on_both(kl, error, other_kl, other_error):
    """Returns results for a text of the calibration's domain, and for another; the loss increases by as much as KL."""
    return {"docs.heldout": (3 + kl, 0.1, 3, kl, error), "prose.heldout": (5 + other_kl, 0.2, 5, other_kl, other_error)}
