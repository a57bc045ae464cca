"""The command headspan-capture: runs a causal language model that transformers loads, and writes Grams for `headspan study
--grams.paths` and `headspan calibrate --grams.paths`."""
import argparse
import itertools
import re
import sys
from pathlib import Path

from headspan import __version__
from headspan.error import InputError, exit_code
from headspan_report.target import check_targets

DTYPES = ("auto", "float64", "float32", "bfloat16", "float16")
STREAMS = ("k", "q", "v", "z")


def command_line():
    parser = argparse.ArgumentParser(prog="headspan-capture", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--version", action="version", version=f"headspan-capture {__version__}")
    parser.add_argument("model", type=Path, metavar="MODEL", help="folder of a checkpoint")
    parser.add_argument("tokens", type=Path, metavar="TOKENS", help="token file: raw ids or .npy")
    parser.add_argument("--output", type=Path, required=True, help="NAME.gram.h5")
    parser.add_argument("--streams", default="k,q,v", help="of k,q,v,z [k,q,v]")
    parser.add_argument("--capture", default="roped", choices=("proj", "normed", "roped"), help="where k and q are taken [roped]")
    parser.add_argument("--activations", type=Path, help="also write the activations of one stream (HDF5)")
    parser.add_argument("--dtype", default="auto", choices=DTYPES, help="of the forward pass [auto: that of the weights]")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, ... [cpu]")
    parser.add_argument("--batch-tokens", type=int, default=4096, help="tokens that run together [4096]")
    for name, kind, value, text in (
            ("sequence_length", int, 2048, "longest sequence"), ("limit", int, 30000, "tokens used"),
            ("heldout", float, 0.25, "share of the sequences that is held out"), ("seed", int, 0, "of the held-out choice"),
            ("skip_first", int, 0, "tokens of each sequence that do not count")):
        parser.add_argument(f"--tokens.{name}", type=kind, default=value, dest=name, help=f"{text} [{value}]")
    parser.add_argument("--tokens.dtype", dest="token_dtype", choices=("uint16", "uint32"), help="of raw ids")
    parser.add_argument("--tokens.eos", dest="eos", help="comma-separated ids that end a text")
    return parser


def check(arguments):
    streams = arguments.streams.split(",")
    if len(set(streams)) < len(streams) or not set(streams) <= set(STREAMS):
        raise InputError("", "--streams", arguments.streams, "is not allowed", "a comma-separated list of k, q, v, z")
    if not str(arguments.output).endswith(".gram.h5"):
        raise InputError("", "--output", arguments.output, "is no name of a Gram file", "NAME.gram.h5")
    if arguments.activations and len(streams) > 1:
        raise InputError("", "--activations", arguments.activations, "holds one stream", "give one with --streams")
    for name, least in (("sequence_length", 1), ("limit", 1), ("skip_first", 0), ("batch_tokens", 1)):
        if getattr(arguments, name) < least:
            raise InputError("", name, getattr(arguments, name), "is too small", f"at least {least}")
    if not 0 <= arguments.heldout < 1:
        raise InputError("", "--tokens.heldout", arguments.heldout, "is no share", "at least 0, below 1")
    inputs = [arguments.tokens, arguments.model / "config.json"]
    check_targets([target for target in (arguments.output, arguments.activations) if target], inputs)
    return streams


def batches(lengths, limit):
    """Yields lists of numbers of sequences of equal length, of at most `limit` tokens together or one alone."""
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    for length, group in itertools.groupby(order, key=lambda i: lengths[i]):
        numbers = list(group)
        step = max(1, limit // length)
        for i in range(0, len(numbers), step):
            yield numbers[i:i + step]


def names_of(folder):
    """Returns (model, checkpoint, step) as headspan names them: a folder named after a step belongs to the one above."""
    name = folder.resolve().name
    step = re.fullmatch(r"(?:.*[-_])?(?:step|checkpoint)[-_]?(\d+)|(\d+)", name)
    if not step:
        return name, name, -1
    return folder.resolve().parent.name, name, int(step[1] or step[2])


def capture(arguments):
    streams = check(arguments)
    import hashlib

    import torch

    from .gram import GramAccumulator, write_grams
    from .model import Capture, weights_digest
    from .moments import KNOWN, AttentionMoments
    from .sample import SampleRule, take_sample
    model = Capture(arguments.model, None if arguments.dtype == "auto" else getattr(torch, arguments.dtype), arguments.device)
    eos = model.config.eos_token_id
    ends = () if eos is None else tuple(eos) if isinstance(eos, (list, tuple)) else (eos,)
    given = None if arguments.eos is None else tuple(int(token) for token in arguments.eos.split(","))
    sample = take_sample(arguments.tokens, SampleRule(arguments.sequence_length, arguments.limit, arguments.heldout,
                                                      arguments.seed, arguments.token_dtype, given),
                         model.config.vocab_size, ends)
    holds_cache = {"k", "v"} <= set(streams) and arguments.capture == "roped"
    moments = AttentionMoments(model) if holds_cache and model.config.model_type in KNOWN else None
    if holds_cache and not moments:
        print(f"headspan-capture: model_type = {model.config.model_type}: its layers are not known, so the file is for "
              "headspan study alone, not for headspan calibrate", file=sys.stderr)
    hooks = model.watch(arguments.capture) + (moments.hooks() if moments else [])
    grams, rows = {}, {}
    forward = str(model.dtype).removeprefix("torch.")
    for numbers in batches(list(map(len, sample.sequences)), arguments.batch_tokens):
        model.run([sample.sequences[i].tolist() for i in numbers], hooks)
        kept = torch.zeros(len(numbers), len(sample.sequences[numbers[0]]), dtype=torch.bool, device=model.device)
        kept[:, arguments.skip_first:] = True
        held = torch.tensor([sample.heldout[i] for i in numbers], device=model.device)[:, None]
        for stream in streams:
            values = [model.values(stream, layer) for layer in range(len(model.layers))]
            if stream not in grams:
                heads, d = [x.shape[2] for x in values], values[0].shape[3]
                grams[stream] = GramAccumulator(len(values), heads, d, stream, arguments.capture, model.config.hidden_size,
                                                forward, arguments.skip_first)
            together = torch.cat([x.flatten(2) for x in values], 2).to(torch.float64)
            for part, is_held in ((kept & ~held, False), (kept & held, True)):
                grams[stream].add_rows(together[part], is_held)
            if arguments.activations:
                for i, number in enumerate(numbers):
                    rows[number] = together[i].cpu().numpy()
        if moments:
            moments.add(kept & ~held)
    name, checkpoint, step = names_of(arguments.model)
    config = (arguments.model / "config.json").read_bytes()
    write_grams(arguments.output, grams.values(), {
        "model_name": name, "checkpoint": checkpoint, "step": step, "training_tokens": -1,
        "model_type": model.config.model_type, "config_sha256": hashlib.sha256(config).hexdigest(),
        "weights_digest": weights_digest(arguments.model), "tokens_path": str(arguments.tokens),
        "tokens_sha256": sample.sha256, "tokens_cut_digest": sample.cut_digest, "versions": f"PyTorch {torch.__version__}"},
        moments.finish() if moments else None)
    if arguments.activations:
        write_activations(arguments.activations, grams[streams[0]], [rows[i] for i in range(len(sample.sequences))])
    fit, heldout = (grams[streams[0]].parts[part].tokens for part in ("fit", "heldout"))
    print(f"status=done streams={arguments.streams} tokens={fit} heldout={heldout} written={arguments.output}")
    return 0


def write_activations(path, gram, sequences):
    """Writes what `headspan study --activations.path` reads."""
    import h5py
    import numpy as np
    with h5py.File(path, "w") as file:
        file["activations"] = np.concatenate(sequences).reshape(-1, len(gram.places), gram.head_size)
        file["layer"], file["head"] = np.array(gram.places).T
        file["sequence"] = np.repeat(np.arange(len(sequences)), list(map(len, sequences)))
        file.attrs.update({"stream": gram.stream, "hidden_size": gram.hidden_size})


def main(words=None):
    arguments = command_line().parse_args(words)
    return exit_code("headspan-capture", "'./analysis[capture]'", lambda: capture(arguments))


if __name__ == "__main__":
    sys.exit(main())
