"""Bad jobs: their keys, their values, and whether they suit the ranks."""
from harness import Case, options
from samples import ACTIVATIONS, KEYS

import numpy as np


def job_file(text):
    return lambda sample: sample.path("job.ini").write_text(text)


def in_file(name, text, line):
    return Case(name, line, job_file(text), arguments=["study", "job.ini"])


def small_activations(sample):
    sample.write_activations(np.random.default_rng(1).standard_normal((40, 3, 2)))


def wide_layer(sample):
    """A layer of 65536 columns, whose matrix has more than 10^9 elements on each of up to four ranks."""
    sample.write_activations(np.zeros((4, 512, 128), np.float32))


def wide_layer_of_a_model(sample):
    sample.write_model(num_attention_heads=512, num_key_value_heads=512, head_dim=64)


def too_wide_to_calibrate(name, line, *more):
    return Case(name, line + r" layers, of which each has 32768 columns, above the 32766 whose eigenvectors LAPACK can count; .+",
                wide_layer_of_a_model, arguments=["calibrate", "--model.path=model", "--tokens.path=tokens.bin",
                                                  "--compress.plan=plan.h5", *more])


def activations_where_results_go(sample):
    small_activations(sample)
    sample.path("activations").mkdir()
    sample.path("z.h5").rename(sample.path("activations") / "z.h5")


MINIMAL = "[model]\npath = model\n[tokens]\npath = tokens.bin\n[output]\ndirectory = out\n"

CASES = [
    in_file("unknown key", MINIMAL + "[predict]\nreference = 3\n",
            r"job\.ini: predict\.reference = 3: is not a key; did you mean predict\.references\?"),
    in_file("key in the wrong section", MINIMAL + "[predict]\nlimit = 100\n",
            r"job\.ini: predict\.limit = 100: is not a key; limit is a key of \[tokens\]"),
    in_file("unknown section", MINIMAL + "[prediction]\nstrength = 5\n",
            r"job\.ini: prediction\.strength = 5: is not a key; the sections are \[model\], \[tokens\].*"),
    in_file("malformed value", MINIMAL.replace("tokens.bin", "tokens.bin\nlimit = 3e4"),
            r"job\.ini: tokens\.limit = 3e4: is not an integer; allowed: an integer of at least 1"),
    in_file("key given twice", MINIMAL + "directory = out2\n",
            r"job\.ini: output\.directory = out2: is given twice; keep one of the two lines"),
    in_file("line that says nothing", MINIMAL + "overwrite\n",
            r"job\.ini: the line 'overwrite' says nothing; .*key = value.*"),
    Case("job file missing", r"job\.ini: cannot be opened: No such file or directory; .+", arguments=["study", "job.ini"]),
    Case("unknown key on the command line", r"command line: run\.group = 2: is not a key; did you mean run\.groups\?",
         keys={"run.group": 2}),
    Case("malformed choice", r"command line: predict\.capture = rope: is not allowed; allowed: proj\|normed\|roped",
         keys={"predict.capture": "rope"}),
    Case("malformed list", r"command line: predict\.streams = k,k: holds k twice; allowed: .*k\|q\|v\|z",
         keys={"predict.streams": "k,k"}),
    Case("malformed grid", r"command line: run\.grid = 2by2: is not a grid; allowed: auto or PxQ.*", keys={"run.grid": "2by2"}),
    Case("no token file named", r"command line: tokens\.path: is missing; a model needs a token file",
         keys={"tokens.path": None}),
    Case("two inputs", r"command line: activations\.path = z\.h5: is given beside model\.path; give one of the two",
         small_activations, keys={"activations.path": "z.h5"}),
    Case("scores of a model that is not there", r"command line: attention\.scores = true: runs a model, and "
         r"activations\.path is none; give a model, or leave it out", small_activations,
         keys={"activations.path": "z.h5", "model.path": None, "tokens.path": None, "attention.scores": "true"}),
    Case("projection of a stream that has none", r"command line: overlap\.projections = k,z: is not allowed; allowed: a "
         r"comma-separated list of k\|q\|v", keys={"overlap.projections": "k,z"}),
    Case("unknown measure of similarity", r"command line: predict\.similarity = cka,rsa: is not allowed; allowed: none or a "
         r"comma-separated list of cka\|cca\|procrustes", keys={"predict.similarity": "cka,rsa"}),
    Case("mode contradicts a key", r"command line: tokens\.heldout = 0\.5: contradicts predict\.mode = paper; .+",
         keys={"predict.mode": "paper", "tokens.heldout": 0.5}),
    Case("ranks not divisible by groups",
         r"run\.groups = 3: (1 rank|4 ranks) cannot be cut into that many groups; start a multiple .*",
         keys={"run.groups": 3}),
    Case("a layer wider than ScaLAPACK can count",
         r"run\.grid = (1x1|2x2): leaves (4294967296|1073741824) elements of the 65536 columns of a layer on a rank, "
         r"above the 1000000000 that ScaLAPACK can count; run on 6 ranks of a group \(2x3\), or set ceiling\.scope = causal",
         wide_layer, base=ACTIVATIONS),
    too_wide_to_calibrate("a layer wider than LAPACK can find the latents of", r"compress\.algorithm = latent: takes the latents of"),
    too_wide_to_calibrate("a layer too wide to measure units", r"compress\.units = measured: takes the latents of",
                          "--compress.algorithm=headspan", "--compress.units=measured"),
    Case("tensor parallel does not divide the KV heads",
         r"run\.tensor_parallel = 4: does not divide (a group of 1 rank|the 2 KV heads of model/config\.json); .+",
         keys={"run.tensor_parallel": 4}),
    Case("tensor parallel does not divide the ranks",
         r"run\.tensor_parallel = 3: does not divide a group of (1 rank|4 ranks); start more ranks, .+",
         lambda sample: sample.write_model(hidden_size=24, num_attention_heads=6, num_key_value_heads=3),
         keys={"run.tensor_parallel": 3}),
    Case("grid does not match", r"run\.grid = 3x1: does not hold a group of (1 rank|4 ranks); use auto or PxQ .*",
         keys={"run.grid": "3x1"}),
    Case("memory too small", r"run\.tensor_parallel = auto: the weights of model do not fit .*; run on more ranks .*",
         keys={"run.memory_gib": 1e-7}),
    Case("bfloat16 product of a float32 forward",
         r"predict\.precision = bfloat16: is coarser than a forward in float32; .+",
         keys={"predict.precision": "bfloat16"}),
    Case("bfloat16 product of a float32 job",
         r"command line: predict\.precision = bfloat16: is allowed only with a forward in half precision; .+",
         keys={"predict.precision": "bfloat16", "model.dtype": "float32"}),
    Case("bfloat16 product of activations", r"command line: predict\.precision = bfloat16: .+; .+", small_activations,
         base=ACTIVATIONS, keys={"predict.precision": "bfloat16"}),
    Case("result in place of its input",
         r"output\.directory = \.: would replace activations/z\.h5, which the job reads; choose another place",
         activations_where_results_go, base={"activations.path": "activations/z.h5", "output.directory": "."}),
    Case("more references than heads",
         r"predict\.references = 1099511627776: is more than the 8 heads that there are; at most 8",
         keys={"predict.references": 2**40, "predict.pool": 2**40}),
    Case("a pool of more than all heads", r"predict\.pool = 1099511627776: is more than the 8 heads that there are; at most 16",
         keys={"predict.pool": 2**40}),
    Case("more references than heads of activations",
         r"predict\.references = 6: is more than the 3 heads that there are; at most 5", small_activations, base=ACTIVATIONS,
         keys={"predict.references": 6}),
    *(Case(f"more references of a {scope} than heads",
           rf"compress\.references = 4611686018427387904: is more than the {others} heads? that can predict another; at most 5",
           arguments=["calibrate", "--model.path=model", "--tokens.path=tokens.bin", "--compress.algorithm=headspan",
                      f"--compress.scope={scope}", f"--compress.references={2**62}", "--compress.plan=plan.h5"])
      for scope, others in (("layer", 1), ("causal", 3))),
    Case("grid beyond any machine", r"command line: run\.grid = 4294967296x4294967296: is too large; allowed: .*",
         keys={"run.grid": "4294967296x4294967296"}),
    Case("plan for more ranks than MPI counts",
         r"command line: --ranks = 2147483648: is too large; allowed: an integer from 1 to 1048576",
         arguments=["plan", *options(KEYS), "--ranks=2147483648"]),
    Case("integer above 2^63", r"command line: tokens\.seed = 18446744073709551615: is out of range; allowed: .*",
         keys={"tokens.seed": 2**64 - 1}),
    Case("theory of 2^32 heads of 2^32", r"command line: theory\.head_size = 4294967296: is too large; allowed: .*",
         arguments=["theory", f"--theory.head_size={2**32}", f"--theory.references={2**32}"]),
    Case("theory beyond what ScaLAPACK counts",
         r"theory\.hidden_size = 16000000: leaves, with 1000 columns, more than 1000000000 elements .+; use more ranks, .+",
         arguments=["theory", "--theory.hidden_size=16000000", "--theory.head_size=10", "--theory.references=99"]),
    Case("result's name too long", r"model\.path = m{100}\.\.\.: makes names that are too long for a file system: .+; .+",
         lambda sample: sample.model.rename(sample.path("m" * 240)), keys={"model.path": "m" * 240}),
    Case("result's folder too long", r"model\.path = model: makes names that are too long for a file system: .+; .+",
         keys={"output.directory": "d" * 256}),
    Case("plan's name too long", r"compress\.plan = p{100}\.\.\.: makes names that are too long for a file system: .+; .+",
         arguments=["calibrate", "--model.path=model", "--tokens.path=tokens.bin", "--tokens.dtype=uint16",
                    "--compress.plan=" + "p" * 250]),
    Case("no GPU", r"run\.device = cuda: .+", keys={"run.device": "cuda"}, code=1),
    Case("skip_first leaves nothing", r"tokens\.skip_first = 16: leaves no token of any sequence; .+",
         keys={"tokens.skip_first": 16}),
]
