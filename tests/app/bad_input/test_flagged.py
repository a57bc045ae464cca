"""What is odd but no error: exit code 0, and results that flag the affected values.

usage: test_flagged.py HEADSPAN MPIEXEC RANKS [NAME]     NAME: only the checks whose name holds it
"""
import json
import re
import shutil

import h5py
import numpy as np

from harness import expect, options, run_main
from samples import ACTIVATIONS, CONFIG, KEYS, Sample, Weights, random_weights

DEFICIENT, CONSTANT, TOO_FEW, NOT_COMPUTED = 1, 2, 4, 16
FLOAT64 = KEYS | {"model.dtype": "float64"}


def noise(tokens, heads, d, seed=3):
    return np.random.default_rng(seed).standard_normal((tokens, heads, d))


def r2(x, y):
    """In-sample R2 of each column of y from the columns of x, by least squares on the centred values."""
    x, y = x - x.mean(0), y - y.mean(0)
    error = y - x @ np.linalg.lstsq(x, y, rcond=None)[0]
    return 1 - (error**2).sum(0) / (y**2).sum(0)


class Study:
    """A finished study of `sample`, with its result in memory."""

    def __init__(self, program, sample, keys):
        self.run = program.study(sample.folder, keys)
        expect(self.run.code == 0 and self.run.errors == [], f"exit code {self.run.code}", self.run)
        expect(self.run.last.startswith("status=done units=1 skipped=0"), self.run.last)
        with h5py.File(next(sample.folder.glob("out/*/*.h5"))) as file:
            self.attributes = {name: dict(group.attrs) for name, group in (("/", file), *file.items())}
            self.values = {}
            file.visititems(lambda name, item: self.values.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None)

    def __getitem__(self, name):
        return self.values[name]

    def fit_rows(self, z):
        """Returns the tokens of z that were not held out."""
        return z[np.repeat(self["tokens/heldout"], self["tokens/length"]) == 0]


def of_activations(program, folder, z, layer=None, **keys):
    sample = Sample(folder)
    sample.write_activations(z, layer)
    return Study(program, sample, ACTIVATIONS | {name.replace("__", "."): value for name, value in keys.items()})


def all_equal(got, expected):
    expect(np.array_equal(got, expected, equal_nan=np.asarray(expected).dtype.kind == "f"), f"got {got}, expected {expected}")


def close(got, expected, tolerance):
    expect(np.allclose(got, expected, rtol=0, atol=tolerance), f"got {got}, expected {expected}")


def off_diagonal(matrix):
    return matrix[~np.eye(len(matrix), dtype=bool)]


def has_bit(status, bit):
    expect(np.all(status & bit == bit), f"status {status} lacks bit {bit}")


def too_few_tokens_for_some_references(program, folder):
    """16 fit tokens: there are answers for p = 4, 8 and 12, but not for p = 16 and 20 (p >= n - 1)."""
    study = of_activations(program, folder, noise(24, 7, 4))
    expect(study.attributes["k"]["n_fit"] == 16, "n_fit")
    for rule in ("pairwise", "forward"):
        expect(np.isfinite(study[f"k/r2_{rule}"][:, :3]).all(), "R2 of three references")
        expect(np.isnan(study[f"k/r2_{rule}"][:, 3:]).all(), "R2 of more references than tokens")
        expect(np.isnan(study[f"k/r2_{rule}_heldout"][:, 3:]).all(), "held-out R2 of more references than tokens")
        has_bit(study[f"k/status_{rule}"][:, 3:], TOO_FEW)
        all_equal(study[f"k/status_{rule}"][:, :3] & TOO_FEW, np.zeros((7, 3), int))
    warnings = [line for line in study.run.warnings if "too few" in line]
    expect(len(warnings) == 1 and "16 fit tokens" in warnings[0] and "4 references" in warnings[0], str(study.run.warnings))


def too_few_tokens_for_any_pair(program, folder):
    study = of_activations(program, folder, noise(24, 3, 15))
    expect(np.isnan(study["k/r2"]).all() and np.isnan(study["k/r2_heldout"]).all(), "R2 of d >= n - 1")
    has_bit(off_diagonal(study["k/status"]), TOO_FEW)
    all_equal(study["k/references_pairwise"], np.full((3, 5), -1))


def constant_coordinate(program, folder):
    z = noise(80, 3, 4)
    z[:, 1, 2] = 7.25
    study = of_activations(program, folder, z)
    fit = study.fit_rows(z)
    has_bit(study["k/status"][1, [0, 2]], CONSTANT)
    all_equal(study["k/status"][[0, 2]] & CONSTANT, np.zeros((2, 3), int))
    close(study["k/r2"][1, 0], r2(fit[:, 0], fit[:, 1][:, [0, 1, 3]]).mean(), 1e-12)
    close(study["k/r2"][0, 1], r2(fit[:, 1][:, [0, 1, 3]], fit[:, 0]).mean(), 1e-12)
    all_equal(study["k/rank"], [4, 3, 4])
    has_bit(study["k/status"][[0, 2], 1], DEFICIENT)
    close(study["k/variance"][1, 2], 0, 0)


def coordinate_too_small_to_be_squared(program, folder):
    """Its squares are denormal: it counts as constant, and all else is as if it were absent."""
    z = noise(80, 3, 4)
    z[:, 1, 2] *= 1e-160
    study = of_activations(program, folder, z)
    fit = study.fit_rows(z)
    has_bit(study["k/status"][1, [0, 2]], CONSTANT)
    close(study["k/r2"][1, 0], r2(fit[:, 0], fit[:, 1][:, [0, 1, 3]]).mean(), 1e-12)
    close(study["k/r2"][0, 1], r2(fit[:, 1][:, [0, 1, 3]], fit[:, 0]).mean(), 1e-12)
    all_equal(study["k/rank"], [4, 3, 4])


def constant_head(program, folder):
    z = noise(80, 3, 4)
    z[:, 1] = [1, -2, 3, 0]
    study = of_activations(program, folder, z)
    expect(np.isnan(study["k/r2"][1]).all() and np.isnan(study["k/r2_pairwise"][1]).all(), "R2 of a head without variance")
    has_bit(study["k/status"][1, [0, 2]], CONSTANT)
    close(study["k/r2"][[0, 2], 1], 0, 1e-12)
    has_bit(study["k/status"][[0, 2], 1], DEFICIENT)
    all_equal(study["k/rank"], [4, 0, 4])
    expect(np.isnan(study["k/effective_rank"][1]), "effective rank of a head without variance")


def constant_head_in_single_products(program, folder):
    """What rounding leaves of its Gram may be below 0, which is no damage. The same holds for squares below the range of float32."""
    for name, spoil in (("constant", lambda head: np.full_like(head, 1e8 / 3)), ("tiny", lambda head: 1e-25 * head)):
        (folder / name).mkdir()
        z = noise(80, 3, 4)
        z[:, 1] = spoil(z[:, 1])
        study = of_activations(program, folder / name, z, predict__precision="float32")
        has_bit(study["k/status"][1, [0, 2]], CONSTANT)
        all_equal(study["k/rank"], [4, 0, 4])


def duplicate_heads(program, folder):
    """Head 2 is a copy of head 0: each predicts the other exactly, and both together predict no more than one."""
    z = noise(80, 3, 4)
    z[:, 2] = z[:, 0]
    study = of_activations(program, folder, z, predict__references=2)
    fit = study.fit_rows(z)
    for a, b in ((0, 2), (2, 0)):
        close([study["k/r2"][a, b], study["k/r2_heldout"][a, b], study["k/r2_weighted"][a, b]], 1, 1e-12)
    all_equal(study["k/references_pairwise"][[0, 2], 0], [2, 0])
    close(study["k/r2_pairwise"][1], [r2(fit[:, 0], fit[:, 1]).mean()] * 2, 1e-12)
    close(study["k/r2_pairwise_heldout"][1, 1], study["k/r2_pairwise_heldout"][1, 0], 1e-12)
    all_equal(study["k/rank_pairwise"][1], [4, 4])
    all_equal(study["k/status_pairwise"][1], [0, DEFICIENT])


def duplicate_coordinates(program, folder):
    z = noise(80, 2, 4)
    z[:, 1, 3] = z[:, 1, 0]
    study = of_activations(program, folder, z)
    all_equal(study["k/rank"], [4, 3])
    all_equal(study["k/status"], [[NOT_COMPUTED, DEFICIENT], [0, NOT_COMPUTED]])


def fewer_sources_than_references(program, folder):
    """Causal sources: head 0 of layer 0 has one (its neighbour), a head of layer 1 has three."""
    z = noise(80, 4, 2)
    study = of_activations(program, folder, z, layer=[0, 0, 1, 1])
    chosen = study["k/references_pairwise"]
    all_equal((chosen >= 0).sum(1), [1, 1, 3, 3])
    for rule in ("pairwise", "forward"):
        beyond = study[f"k/references_{rule}"] < 0
        expect(np.isnan(study[f"k/r2_{rule}"][beyond]).all() and np.isfinite(study[f"k/r2_{rule}"][~beyond]).all(), rule)
        has_bit(study[f"k/status_{rule}"][beyond], NOT_COMPUTED)


def more_ranks_than_tokens(program, folder):
    study = of_activations(program, folder, noise(3, 2, 1), tokens__heldout=0)
    expect(study.attributes["k"]["n_fit"] == 3 and "k/r2_heldout" not in study.values, "three tokens, none held out")
    z = noise(3, 2, 1)
    close(study["k/r2"][0, 1], r2(z[:, 1], z[:, 0])[0], 1e-12)


def one_head_in_all(program, folder):
    study = of_activations(program, folder, noise(80, 1, 4))
    all_equal(study["k/status"], [[NOT_COMPUTED]])
    expect(np.isnan(study["k/r2"]).all(), "R2 of a head from itself")
    all_equal(study["k/references_pairwise"], np.full((1, 5), -1))
    has_bit(study["k/status_pairwise"], NOT_COMPUTED)


def model_study(program, folder, keys=None, config=None, tokens=None):
    sample = Sample(folder)
    if config:
        sample.write_model(**config)
    if tokens is not None:
        sample.write_tokens(tokens)
    return Study(program, sample, FLOAT64 | (keys or {}))


def all_equal_tokens(program, folder):
    """In layer 0 a key is a constant vector rotated by its position, so linear in any other head's; a value is constant."""
    study = model_study(program, folder, tokens=[5] * 400)
    close(off_diagonal(study["k/r2"][:2, :2]), 1, 1e-9)
    has_bit(off_diagonal(study["v/status"][:2, :2]), CONSTANT)
    expect(np.isnan(study["v/r2"][:2]).all(), "R2 of values that do not change")


def sequences_of_one_token(program, folder):
    """At position 0 RoPE rotates nothing."""
    study = model_study(program, folder, {"tokens.sequence_length": 1, "predict.streams": "k"})
    all_equal(study["tokens/length"], np.ones(400, int))
    expect(study.attributes["k"]["n_fit"] == 300 and study.attributes["k"]["n_heldout"] == 100, "split")
    other = folder / "other"
    other.mkdir()
    unturned = model_study(program, other,
                           {"tokens.sequence_length": 1, "predict.streams": "k", "predict.capture": "proj"})
    close(off_diagonal(study["k/r2"]), off_diagonal(unturned["k/r2"]), 1e-12)


def one_token_in_all(program, folder):
    study = model_study(program, folder, tokens=[5])
    for stream in "kqv":
        expect(study.attributes[stream]["n_fit"] == 1 and np.isnan(study.attributes[stream]["noise_floor"]).all(), "n_fit")
        expect(np.isnan(study[f"{stream}/r2"]).all(), "R2 of one token")
        has_bit(off_diagonal(study[f"{stream}/status"]), TOO_FEW)
        expect(np.isnan(study[f"{stream}/variance"]).all() and np.isfinite(study[f"{stream}/mean"]).all(), "moments")


def one_layer_of_one_head(program, folder):
    study = model_study(program, folder,
                        config={"num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1})
    for stream in "kqv":
        all_equal(study[f"{stream}/status"], [[NOT_COMPUTED]])
        expect(np.isfinite(study[f"{stream}/spectrum"]).all(), "spectrum")


def one_layer(program, folder):
    study = model_study(program, folder, config={"num_hidden_layers": 1})
    expect(np.isfinite(off_diagonal(study["q/r2"])).all(), "R2")
    all_equal((study["k/references_pairwise"] >= 0).sum(1), [1, 1])


def limit_below_one_sequence(program, folder):
    study = model_study(program, folder, {"tokens.limit": 10, "predict.streams": "k"})
    all_equal(study["tokens/length"], [10])
    expect(study.attributes["k"]["n_fit"] == 10 and study.attributes["k"]["n_heldout"] == 0, "split")
    expect(not [name for name in study.values if name.endswith("_heldout")], "held-out variables of nothing")
    expect("nothing to hold out" in study.run.stderr, "notice", study.run)


def tokens_of_another_tokenizer(program, folder):
    """Where the sidecar contradicts the model there is a warning and an attribute of the result; where they agree there is neither."""
    sample = Sample(folder)
    for sidecar, vocabulary, line in (
            ({"tokenizer": "lab/GPT-2"}, 32, r"tokenizer = lab/GPT-2: model/config\.json is of a model of another name"),
            ({"tokenizer": "Model", "vocab_size": 32}, 1057, r"vocab_size = 32: model/config\.json has a vocabulary of 1057"),
            ({"tokenizer": "lab/M.o.d.e.l", "vocab_size": 32}, 1056, None)):
        sample.write_model(vocab_size=vocabulary)
        sample.write_sidecar(**sidecar)
        study = Study(program, sample, FLOAT64 | {"predict.streams": "k", "output.overwrite": "true"})
        found = [study.attributes["/"][name].decode() for name in ("tokens_mismatch",) if name in study.attributes["/"]]
        expect(study.run.warnings == found and len(found) == (line is not None), str(found), study.run)
        for text in found:
            expect(re.fullmatch(rf"tokens\.json: {line}; the tokens may be those of another tokenizer", text), text)


def text(attribute):
    return attribute.decode() if isinstance(attribute, bytes) else attribute


def save_gram(program, folder, keys):
    """Returns the Gram file of a study, and the attributes of its root."""
    run = program.study(folder, FLOAT64 | {"output.save_gram": "true", "ceiling.enabled": "false"} | keys)
    expect(run.code == 0, f"exit code {run.code}", run)
    path, = (folder / "out").rglob("*.gram.h5")
    return path, root_of(path)


def root_of(path):
    with h5py.File(path) as file:
        return dict(file.attrs)


def another_tokenizer_behind_grams(program, folder):
    """Warned of once for each file made from them, which keeps it."""
    sample = Sample(folder)
    sample.write_sidecar(tokenizer="lab/GPT-2")
    gram, attributes = save_gram(program, folder, {"predict.streams": "k,v", "tokens.heldout": 0})
    line = text(attributes["tokens_mismatch"])
    for suffix in ("", ".done"):
        for name in "ab":
            shutil.copy(f"{gram}{suffix}", folder / f"{name}.gram.h5{suffix}")
    evaluate = {"model.path": "model", "tokens.sequence_length": 16, "evaluate.plan": "plan.h5", "evaluate.texts": "tokens.bin",
                "evaluate.summary": "summary.json"}
    for command, keys in (("study", {"grams.paths": "a.gram.h5,b.gram.h5", "output.directory": "merged"}),
                          ("calibrate", {"grams.paths": "a.gram.h5", "compress.exact_first": 0, "compress.stored": 0.5,
                                         "compress.plan": "plan.h5"}),
                          ("evaluate", evaluate)):
        run = program.run(folder, [command, *options(keys)])
        expect(run.code == 0 and run.warnings == [line], f"{command}: exit code {run.code}, {run.warnings}", run)
    result, = (folder / "merged").rglob("*.h5")
    for path in (result, folder / "plan.h5"):
        expect(text(root_of(path).get("tokens_mismatch")) == line, f"{path.name} does not tell")
    expect(json.loads(sample.path("summary.json").read_text())["texts"]["tokens"]["tokens_mismatch"] == line, "the summary")


def grams_of_a_model(program, folder):
    """They say of which weights they are, wherever these lie, and how they were made; the job in their result runs again."""
    Sample(folder)
    gram, attributes = save_gram(program, folder, {"model.init": "random", "predict.streams": "k", "predict.capture": "proj",
                                                   "predict.precision": "split"})
    (folder / "elsewhere").mkdir()
    for suffix in ("", ".done"):
        gram.with_name(gram.name + suffix).rename(folder / "elsewhere" / f"a.gram.h5{suffix}")
    run = program.study(folder, {"grams.paths": "elsewhere/a.gram.h5", "output.directory": "merged"})
    expect(run.code == 0, f"exit code {run.code}", run)
    found = root_of(folder / "merged" / "model" / "a.h5")
    for name in ("model_name", "init", "step", "training_tokens", "tokens_sha256", "config_sha256"):
        expect(found[name] == attributes[name], f"{name} = {found[name]}, not {attributes[name]}")
    expect(text(found["init"]) == "random", "init")
    job = text(found["job"])
    expect("\ncapture = proj\n" in job and "\nprecision = split\n" in job, job)
    (folder / "again.ini").write_text(job)
    run = program.run(folder, ["study", "again.ini"])
    expect(run.last.startswith("status=done units=0 skipped=1"), run.last, run)


def text_of_single_tokens(program, folder):
    """Nothing is predicted, and the log says so. The plan of plain columns in few bits needs no tokens."""
    sample = Sample(folder)
    plan = {"model.path": "model", "compress.algorithm": "quantise", "compress.bits": 8, "compress.plan": "plan.h5"}
    run = program.run(folder, ["calibrate", *options(plan)])
    expect(run.code == 0, f"exit code {run.code}", run)
    keys = {"model.path": "model", "tokens.sequence_length": 1, "evaluate.plan": "plan.h5", "evaluate.texts": "tokens.bin",
            "evaluate.summary": "summary.json"}
    run = program.run(folder, ["evaluate", *options(keys)])
    found = json.loads(sample.path("summary.json").read_text())["texts"]["tokens"]
    expect(run.code == 0 and found["tokens"] == 0 and found["loss"] is None and found["kl"] is None, str(found), run)
    line = "headspan: notice: tokens: loss and KL are null: its sequences have one token each, which nothing predicts"
    expect(run.stderr.splitlines().count(line) == 1, "notice", run)


def activations_without_a_stream(program, folder):
    study = of_activations(program, folder, noise(80, 3, 4))
    line = "headspan: notice: z.h5 has no attribute stream: taken for keys, stream = k"
    expect(study.run.stderr.splitlines().count(line) == 1, "notice", study.run)
    expect("k/r2" in study.values, "stream k")


def compressed(program, folder, bits, **more):
    """A model with a layer of dead values and dependent keys: every latent of a plan can be computed and inverted; the cost of
    storing them all."""
    sample = Sample(folder)
    tensors = random_weights(CONFIG)
    keys = tensors["model.layers.0.self_attn.k_proj.weight"]
    keys[2:4], keys[4:] = keys[:2], 0
    tensors["model.layers.1.self_attn.v_proj.weight"][:] = 0
    Weights(tensors).write(sample.model / "model.safetensors")
    shared = {"model.path": "model", "model.dtype": "float64", "tokens.sequence_length": 16}
    run = program.run(folder, ["calibrate", *options(shared | {"tokens.path": "tokens.bin", "compress.plan": "plan.h5",
                                                               "compress.effort": "quick", "compress.bits": bits} | more)])
    expect(run.code == 0 and run.errors == [], f"exit code {run.code}", run)
    with h5py.File(sample.path("plan.h5")) as plan:
        all_equal(plan["v/1/eigenvalues"][()], np.zeros(8))
        for block in (plan[f"{stream}/{layer}"] for stream in "kv" for layer in range(2)):
            close(block["projection"][()].astype(float) @ block["lift"], np.eye(8), 1e-6)
    run = program.run(folder, ["evaluate", *options(shared | {"evaluate.plan": "plan.h5", "evaluate.texts": "tokens.bin",
                                                              "evaluate.summary": "summary.json"})])
    expect(run.code == 0 and run.errors == [], f"exit code {run.code}", run)
    return json.loads(sample.path("summary.json").read_text())["texts"]["tokens"]["kl"]


def dead_layer_in_given_bits(program, folder):
    expect(0 < compressed(program, folder, "4x8,4x6") < 1e-3, "KL of 8 and 6 bits")


def dead_layer_in_whole_columns(program, folder):
    expect(abs(compressed(program, folder, "16", **{"compress.stored": 1})) < 1e-10, "KL of all latents as they are")


CHECKS = [too_few_tokens_for_some_references, too_few_tokens_for_any_pair, constant_coordinate,
          coordinate_too_small_to_be_squared, constant_head, constant_head_in_single_products, duplicate_heads,
          duplicate_coordinates, fewer_sources_than_references, more_ranks_than_tokens, one_head_in_all, all_equal_tokens,
          sequences_of_one_token, one_token_in_all, one_layer_of_one_head, one_layer, limit_below_one_sequence,
          tokens_of_another_tokenizer, another_tokenizer_behind_grams, grams_of_a_model, text_of_single_tokens,
          activations_without_a_stream, dead_layer_in_given_bits,
          dead_layer_in_whole_columns]


run_main((check.__name__, check) for check in CHECKS)
