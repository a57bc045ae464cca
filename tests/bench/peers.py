#!/usr/bin/env python3
"""What a user would run instead of headspan, measured: the peers of headspan-bench.

  peers.py numpy         Gram, all pairs and top-5 of one stream in memory: the best that numpy and scipy give
  peers.py selection     forward selection on the same stream
  peers.py paper         the paper's least squares, one for each pair of source head and target layer;
                         measured for a few sources and extrapolated to all pairs
  peers.py spectra       eigenvalues of W^T W and singular values of one projection W of a layer
  peers.py transformers  the forward pass of the checkpoint in --folder, float32; with --device cuda on a GPU in
                         bfloat16, with random weights where the folder has none
  peers.py study         a whole study of K, Q and V: the forward pass of the checkpoint in --folder over the tokens
                         in --ids (float32), and numpy's Gram, all pairs and top-5 of what it captures; with
                         --result how far its R² are from those of a study with headspan
  peers.py decode        prefill and greedy decoding of it through transformers' DynamicCache, float32, of --batch
                         sequences behind --sequence-length tokens
  peers.py make          writes a checkpoint for `transformers` and for headspan-bench's `forward`, `load` and
                         `memory`: a llama with random weights
  peers.py blas          GF/s of numpy's products in FP64 and FP32 on one core, as headspan --blas-speed measures them;
                         first a Gram of all columns on --threads, which must not crash
  peers.py versions      of numpy, scipy, torch and transformers

Shapes and options are those of headspan-bench. Prints one line per figure, as headspan-bench does; times are
medians of --repeats runs after one that warms up. Needs numpy and scipy; `transformers` and `make` also torch
and transformers. Runs on the cores it is given (taskset), with --threads threads.
"""
import argparse
import glob
import importlib
import multiprocessing
import os
import statistics
import sys
import time
from typing import Any

POOL = 16
SEED = 1
np: Any  # main imports them when the environment is set
scipy: Any
torch: Any
transformers: Any
least_squares: Any


def parse():
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--heads", type=int, default=12, help="of a layer")
    parser.add_argument("--head-size", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=30000)
    parser.add_argument("--sequence-length", type=int, default=256, help="of transformers and decode")
    parser.add_argument("--batch", type=int, default=1, help="of decode")
    parser.add_argument("--precision", choices=["float64", "float32"], default="float64")
    parser.add_argument("--samples", type=int, default=4, help="of paper: source heads that are measured")
    parser.add_argument("--folder", help="of transformers, study, decode and make")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="of transformers")
    parser.add_argument("--ids", help="of study: a file of uint16 tokens, a multiple of --sequence-length")
    parser.add_argument("--result", help="of study: a file that headspan wrote of the same tokens, none held out")
    model = parser.add_argument_group("the model of make (heads: --heads, layers: --layers)")
    model.add_argument("--hidden-size", type=int, default=512)
    model.add_argument("--mlp-size", type=int, default=2048)
    model.add_argument("--vocab-size", type=int, default=8192)
    model.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    model.add_argument("--shard-size", default="5GB", help="most bytes of a file of weights")
    model.add_argument("--config-only", action="store_true", help="no weights")
    options = parser.parse_args()
    if options.peer in ("transformers", "study", "decode", "make") and not options.folder:
        parser.error(f"{options.peer} needs --folder")
    if options.peer == "study" and not options.ids:
        parser.error("study needs --ids")
    return options


def median_seconds(options, work):
    work()
    seconds = []
    for _ in range(options.repeats):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def report(options, figure, unit, value):
    print(f"{figure:<66} {value:10.3f} {unit}")
    print(f'bench={options.peer} figure="{figure}" unit={unit} value={value:.6g} threads={options.threads} '
          f"precision={options.precision} layers={options.layers} heads={options.heads} "
          f"head_size={options.head_size} tokens={options.tokens} sequence_length={options.sequence_length} "
          f"repeats={options.repeats}", flush=True)


def run_numpy(options):
    regressions = least_squares.Regressions(least_squares.Stream(options, SEED), np.dtype(options.precision))

    def study():
        regressions.accumulate()
        regressions.all_pairs()
        regressions.top()

    total = median_seconds(options, study)
    target = regressions.targets()[-1]
    regressions.compare_with_lstsq([0], target, regressions.r2[0, target])
    regressions.compare_with_lstsq(regressions.rank_sources(least_squares.REFERENCES)[target], target,
                                   regressions.joint[target, -1])
    report(options, "Gram, all pairs and top-5", "s", total)


shared = None  # in a worker of run_selection: what it works on


def share(regressions):
    global shared
    shared = regressions


def select_forward(targets):
    pools = shared.rank_sources(POOL)
    return [shared.forward(t, pools[t][:shared.stream.causal_sources(t)]) for t in targets]


def run_selection(options):
    """Threads of BLAS would only get in the way of so many small calls: one process for each core."""
    regressions = least_squares.Regressions(least_squares.Stream(options, SEED), np.dtype(options.precision))
    regressions.accumulate()
    regressions.all_pairs()
    targets = regressions.targets()
    share(regressions)
    chosen, r2 = select_forward(targets[-1:])[0]
    regressions.compare_with_lstsq(chosen, targets[-1], r2[-1])
    if options.threads == 1:
        seconds = median_seconds(options, lambda: select_forward(targets))
    else:
        parts = [targets[part::options.threads] for part in range(options.threads)]
        fork = multiprocessing.get_context("fork")  # the Gram is shared, not copied
        with fork.Pool(options.threads, share, (regressions,)) as workers:
            seconds = median_seconds(options, lambda: workers.map(select_forward, parts, chunksize=1))
    report(options, "forward selection", "s", seconds)


def run_paper(options):
    """The paper's code: float32 least squares of [X, 1] by SVD with cutoff eps * tokens on the device (what
    cupy.linalg.lstsq does), R² of each head of the target layer on the same tokens."""
    options.precision = "float32"
    stream = least_squares.Stream(options, SEED)
    width = stream.layer_heads * stream.size
    layers = [np.ascontiguousarray(stream.z[:, i * width:(i + 1) * width]) for i in range(options.layers)]
    cutoff = np.finfo(np.float32).eps * stream.tokens
    ones = np.ones((stream.tokens, 1), np.float32)

    def one(source, layer):
        x, y = np.concatenate([stream.z[:, stream.columns_of(source)], ones], 1), layers[layer]
        u, s, vt = scipy.linalg.svd(x, full_matrices=False, check_finite=False)
        inverse = np.where(s > cutoff * s[0], 1 / s, 0).astype(np.float32)
        error = y - x @ (vt.T @ (inverse[:, None] * (u.T @ y)))
        r2 = 1 - np.square(error).sum(0) / np.square(y - y.mean(0)).sum(0)
        return r2.reshape(stream.layer_heads, stream.size).mean(1)

    random = np.random.default_rng(SEED)
    sources = random.choice(stream.heads, min(options.samples, stream.heads), replace=False)
    calls = [(int(source), int(random.integers(options.layers))) for source in sources]
    per_call = median_seconds(options, lambda: [one(*call) for call in calls]) / len(calls)
    figure = f"least squares for all pairs, extrapolated from {len(calls)} of {stream.heads * options.layers}"
    report(options, figure, "s", per_call * stream.heads * options.layers)


def run_spectra(options):
    size = options.heads * options.head_size
    w = np.random.default_rng(SEED).normal(scale=0.02, size=(size, size))
    options.precision, options.tokens = "float64", 0
    for figure, spectrum in (
            ("eigenvalues of a layer's W^T W", lambda: np.linalg.eigvalsh(w.T @ w)),
            ("singular values of a layer", lambda: np.linalg.svd(w, compute_uv=False))):
        report(options, figure, "s", median_seconds(options, spectrum))


def load_model(options):
    """The checkpoint in --folder; its shape becomes that of the options."""
    torch.set_num_threads(options.threads)
    torch.set_grad_enabled(False)
    options.precision = "bfloat16" if options.device == "cuda" else "float32"
    dtype = getattr(torch, options.precision)
    if glob.glob(f"{options.folder}/*.safetensors"):
        model = transformers.AutoModelForCausalLM.from_pretrained(options.folder, dtype=dtype)
    else:
        config = transformers.AutoConfig.from_pretrained(options.folder)
        with torch.device(options.device):
            model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)
    model = model.to(options.device).eval()
    options.layers = model.config.num_hidden_layers
    options.heads = model.config.num_key_value_heads
    options.head_size = model.model.layers[0].self_attn.head_dim
    return model


def run_transformers(options):
    model = load_model(options)
    batch = options.tokens // options.sequence_length
    if batch * options.sequence_length != options.tokens:
        sys.exit("peers.py: --tokens must be a multiple of --sequence-length")
    ids = torch.arange(options.tokens).mul(7919).remainder(model.config.vocab_size).view(batch, -1).to(options.device)

    def wait_for(result):
        if options.device == "cuda":
            torch.cuda.synchronize()
        return result

    for figure, forward in (
            ("trunk, K and V kept", lambda: wait_for(model.model(ids, use_cache=True).past_key_values)),
            ("forward to logits", lambda: wait_for(model(ids, use_cache=False).logits))):
        report(options, figure, "tokens/s", options.tokens / median_seconds(options, forward))


def capture(model, ids, streams):
    """Runs the model over ids: [sequence, position] and fills the streams: K and Q behind the rotation."""
    config, length = model.config, ids.shape[1]
    rotate = importlib.import_module(type(model).__module__).apply_rotary_pos_emb
    cos, sin = model.model.rotary_emb(torch.empty(1, 1), torch.arange(length)[None])
    queries = {}
    for layer, block in enumerate(model.model.layers):
        block.self_attn.q_proj.register_forward_hook(
            lambda _, __, out, layer=layer: queries.__setitem__(layer, out))
    for first in range(0, len(ids), 4):
        batch = ids[first:first + 4]
        past = model.model(torch.from_numpy(batch), use_cache=True).past_key_values
        for layer in range(config.num_hidden_layers):
            q = queries[layer].view(len(batch), length, -1, config.head_dim).transpose(1, 2)
            values = {"q": rotate(q, q, cos, sin)[0], "k": past.layers[layer].keys, "v": past.layers[layer].values}
            for name, stream in streams.items():
                stream.take(first * length, layer, values[name].transpose(1, 2).reshape(batch.size, -1).numpy())


def run_study(options):
    """A llama: a norm of queries would have to go between the hook and the rotation."""
    model, config_heads = load_model(options), {}
    ids = np.fromfile(options.ids, "<u2").astype(np.int64).reshape(-1, options.sequence_length)
    config, options.tokens, options.precision = model.config, ids.size, "float64"
    for name in "kqv":
        config_heads[name] = config.num_attention_heads if name == "q" else config.num_key_value_heads
    start = time.perf_counter()
    streams = {name: least_squares.Captured(ids.size, config.num_hidden_layers, heads, config.head_dim)
               for name, heads in config_heads.items()}
    capture(model, ids, streams)
    captured = time.perf_counter()
    r2 = {}
    for name, stream in streams.items():
        regressions = least_squares.Regressions(stream, np.dtype(np.float64))
        regressions.accumulate()
        regressions.all_pairs()
        regressions.top()
        r2[name] = regressions.r2
    done = time.perf_counter()
    report(options, "K, Q and V: forward", "s", captured - start)
    report(options, "K, Q and V: Grams, all pairs and top-5", "s", done - captured)
    report(options, "whole study of K, Q and V", "s", done - start)
    if options.result:
        with importlib.import_module("h5py").File(options.result) as file:
            for name, values in r2.items():
                furthest = np.nanmax(np.abs(file[f"{name}/r2"][...].T - values))
                report(options, f"furthest R2 from that of headspan, {name}", "-", furthest)


def run_decode(options):
    model = load_model(options)
    options.tokens = options.batch * options.sequence_length
    ids = torch.arange(options.tokens).mul(7919).remainder(model.config.vocab_size).view(options.batch, -1)
    cache = transformers.DynamicCache(config=model.config)

    def run(tokens):
        return model(tokens, past_key_values=cache, logits_to_keep=1).logits[:, -1].argmax(-1, keepdim=True)

    start = time.perf_counter()
    following = run(ids)
    prefill = time.perf_counter() - start

    def step():
        nonlocal following
        following = run(following)

    shape = f", context {options.sequence_length}, batch {options.batch}"
    decode = median_seconds(options, step)
    report(options, "prefill" + shape, "tokens/s", options.tokens / prefill)
    report(options, "decode" + shape, "tokens/s", options.batch / decode)


def run_make(options):
    config = transformers.LlamaConfig(
        hidden_size=options.hidden_size, num_hidden_layers=options.layers, num_attention_heads=options.heads,
        num_key_value_heads=options.heads, intermediate_size=options.mlp_size, vocab_size=options.vocab_size,
        max_position_embeddings=8192, bos_token_id=1, eos_token_id=2, tie_word_embeddings=False)
    config.architectures = ["LlamaForCausalLM"]
    if options.config_only:
        return config.save_pretrained(options.folder)
    torch.manual_seed(SEED)
    model = transformers.LlamaForCausalLM(config).to(getattr(torch, options.dtype))
    model.save_pretrained(options.folder, max_shard_size=options.shard_size)


def run_blas(options):
    """Prints GF/s and nothing else. Some kernels crash only in a Gram as large as that of --layers, --heads and --head-size."""
    columns = options.layers * options.heads * options.head_size
    scipy.linalg.blas.dsyrk(1.0, np.ones((1024, columns)).T, lower=1)
    seconds, products = 0.0, 0
    for size, dtype in ((448, np.float64), (560, np.float32)):
        x = np.ones((size, size), dtype)
        times = []
        for _ in range(6):
            start = time.thread_time()
            x @ x.T[:, ::-1]  # a view that is not x^T, for which numpy calls syrk
            times.append(time.thread_time() - start)
        seconds += min(times[1:])
        products += size ** 3
    print(f"{2e-9 * products / seconds:.6g}")


def run_versions(options):
    """On one line."""
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    print(f"numpy {np.__version__} ({blas['name']} {blas['version']}), scipy {scipy.__version__}, "
          f"torch {torch.__version__}, transformers {transformers.__version__}")


PEERS = {"numpy": run_numpy, "selection": run_selection, "paper": run_paper, "spectra": run_spectra, "blas": run_blas,
         "transformers": run_transformers, "study": run_study, "decode": run_decode, "make": run_make, "versions": run_versions}


def load(modules):
    """Imports the modules, and ends the run with what to install where one is missing."""
    for module in modules:
        try:
            yield importlib.import_module(module)
        except ImportError as error:
            sys.exit(f"peers.py: {error}; start it with a Python that has {', '.join(modules)}")


def main():
    options = parse()
    threads = 1 if options.peer == "selection" else options.threads
    for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ[name] = str(threads)  # before any of them is loaded
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    if options.device == "cpu":
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    global np, scipy, torch, transformers, least_squares
    of_models = ("transformers", "decode", "make")
    if options.peer in (*of_models, "study", "versions"):
        torch, transformers = load(["torch", "transformers"])
        transformers.utils.logging.disable_progress_bar()
    if options.peer not in of_models:
        np, scipy, _, least_squares = load(["numpy", "scipy", "scipy.linalg", "least_squares"])
    PEERS[options.peer](options)


if __name__ == "__main__":
    main()
