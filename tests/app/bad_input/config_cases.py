"""config.json: missing and unsupported fields."""
import json

from harness import Case

FILE = r"model/config\.json: "


def config(**changes):
    return lambda sample: sample.write_model(**changes)


def llama3(**changes):
    rope = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64}
    return config(rope_scaling={key: value for key, value in (rope | changes).items() if value is not None})


def field(**changes):
    """Changes fields of config.json that do not concern the weights."""
    def spoil(sample):
        path = sample.model / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return spoil


CASES = [
    Case("id of a hub", r"EleutherAI/pythia-70m: does not exist; if it is a repository of the Hugging Face hub, fetch it: "
         r"python3 checkpoints/fetch\.py EleutherAI/pythia-70m", keys={"model.path": "EleutherAI/pythia-70m"}),
    Case("no checkpoint folder", r"model: does not exist; .+", lambda sample: sample.model.rename(sample.path("other"))),
    Case("no config", r"model: holds no config\.json; .+", lambda sample: (sample.model / "config.json").unlink()),
    Case("config is no JSON", FILE + "is not valid JSON: .+; .+",
         lambda sample: (sample.model / "config.json").write_text("{'a': 1}")),
    Case("config nested deep", FILE + "nests deeper than 32; .+",
         lambda sample: (sample.model / "config.json").write_text('{"model_type": ' + '{"a":' * 200_000 + "1" + "}" * 200_001)),
    Case("field missing", FILE + "num_hidden_layers: is missing; .+", config(num_hidden_layers=None)),
    Case("field of the wrong kind", FILE + 'vocab_size = "many": is no possible value; .+', config(vocab_size="many")),
    Case("field out of range", FILE + "hidden_size = 0: is no possible value; .+", config(hidden_size=0)),
    Case("2^62 layers", FILE + "num_hidden_layers = 4611686018427387904: is no possible value; .+", field(num_hidden_layers=2**62)),
    Case("end of document above 2^63", FILE + "eos_token_id = .18446744073709551615.: is no possible value; .+",
         field(eos_token_id=[2**64 - 1])),
    Case("model type", FILE + 'model_type = "gpt2": is not supported; apertus, gemma2, .+ and smollm3 are', config(model_type="gpt2")),
    Case("activation", FILE + 'hidden_act = "gelu": is not supported; only silu is', config(hidden_act="gelu")),
    Case("rope type", FILE + r'rope_scaling\.rope_type = "dynamic": is not supported; default, linear, .+ are',
         llama3(rope_type="dynamic")),
    Case("rope field missing", FILE + r"rope_scaling\.factor: is missing; .+", llama3(factor=None)),
    Case("a window that the type does not have", FILE + "layer_types = .+: asks for layers that are not supported; only "
         "full_attention is for llama", config(layer_types=["full_attention", "sliding_attention"])),
    Case("layers with a window without its size", FILE + "sliding_window: is missing; .+",
         config(model_type="olmo3", layer_types=["full_attention", "sliding_attention"])),
    Case("KV heads do not divide the heads", FILE + "num_key_value_heads = 3: does not divide the 4 attention heads; .+",
         config(num_key_value_heads=3)),
    Case("model type that has norms the weights lack", r"model: model\.layers\.0\.self_attn\.[qk]_norm\.weight: is missing; .+",
         config(model_type="olmo2")),
]
