"""headspan plan against real runs: peak memory as reported by the system, bytes as received by MPI.

usage: test_plan.py HEADSPAN MPIEXEC COUNT_TRAFFIC [unittest's arguments]     COUNT_TRAFFIC: the library that counts
"""
import json
import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
from forward import write_safetensors
from program import StudyTest, main

COUNT_TRAFFIC = sys.argv.pop(3)
SHAPES = {"mha": (8, 6, 6, 64, 1536), "gqa": (4, 8, 2, 32, 1024)}  # layers, query heads, KV heads, head size, MLP size
# Runs a command and appends its peak resident memory to a file.
MEASURE = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[2:]).returncode
with open(sys.argv[1], "a") as file:
    file.write(f"{resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024}\\n")
sys.exit(code)
"""


class Plan(StudyTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.tokens = cls.write_tokens("ids.bin", np.random.default_rng(1).integers(1, 4096, 3000))
        for name, (layers, heads, kv_heads, size, mlp) in SHAPES.items():
            config = {"model_type": "llama", "num_hidden_layers": layers, "hidden_size": heads * size,
                      "intermediate_size": mlp, "num_attention_heads": heads, "num_key_value_heads": kv_heads,
                      "head_dim": size, "vocab_size": 4096, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
                      "rope_theta": 1e4, "initializer_range": 0.02, "torch_dtype": "float32", "hidden_act": "silu",
                      "tie_word_embeddings": False, "eos_token_id": 0}
            (cls.folder / name).mkdir()
            (cls.folder / name / "config.json").write_text(json.dumps(config))
            cls.write_weights(f"{name}-stored", config)

    @classmethod
    def write_weights(cls, name, config):
        """Writes a checkpoint that can be a reference."""
        hidden, mlp, vocabulary = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
        q, kv = (config[f"num_{heads}_heads"] * config["head_dim"] for heads in ("attention", "key_value"))
        shapes = {"model.embed_tokens": (vocabulary, hidden), "model.norm": (hidden,), "lm_head": (vocabulary, hidden)}
        for layer in range(config["num_hidden_layers"]):
            of_layer = {"self_attn.q_proj": (q, hidden), "self_attn.k_proj": (kv, hidden), "self_attn.v_proj": (kv, hidden),
                        "self_attn.o_proj": (hidden, q), "mlp.gate_proj": (mlp, hidden), "mlp.up_proj": (mlp, hidden),
                        "mlp.down_proj": (hidden, mlp), "input_layernorm": (hidden,), "post_attention_layernorm": (hidden,)}
            shapes |= {f"model.layers.{layer}.{part}": shape for part, shape in of_layer.items()}
        rng = np.random.default_rng(2)
        (cls.folder / name).mkdir()
        (cls.folder / name / "config.json").write_text(json.dumps(config))
        write_safetensors(cls.folder / name / "model.safetensors", {
            f"{tensor}.weight": np.ones(shape) if len(shape) == 1 else 0.02 * rng.standard_normal(shape, np.float32)
            for tensor, shape in shapes.items()})

    def job(self, name, **more):
        keys = {"model.path": self.folder / name, "model.init": "random", "tokens.path": self.tokens,
                "tokens.limit": 3000, "tokens.sequence_length": 256, "overlap.enabled": "false",
                "output.directory": self.folder / "out", "output.overwrite": "true", **more}
        return [f"--{key}={value}" for key, value in keys.items()]

    def plan(self, *arguments):
        run = self.run_program(1, "plan", *arguments)
        return run.returncode, run.stdout, run.stderr

    def planned(self, job, ranks, line):
        """Returns {name: number} of a line of the plan."""
        code, printed, told = self.plan(*job, f"--ranks={ranks}")
        self.assertEqual(code, 0, told)
        text = re.search(rf"^{line} (.*)$", printed, re.MULTILINE)[1]
        return {name: float(value) for name, value in (word.split("=") for word in text.split())}

    def run_study(self, job, ranks, wrapper=(), environment=()):
        exported = [word for name in environment for word in ("-x", name)]
        command = [self.mpiexec, *exported, "-n", str(ranks), *wrapper, self.program, "study", *job]
        run = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False,
                             env={**os.environ, **dict(environment or {})})
        self.assertEqual(run.returncode, 0, run.stderr)

    @unittest.skipIf("ASAN_OPTIONS" in os.environ, "the sanitizer's own memory counts too")
    def test_memory_within_a_fifth(self):
        measure = self.folder / "measure.py"
        measure.write_text(MEASURE)
        cross = {"cross.streams": "q:k"}
        models = [{"predict.streams": "k,v", "cross.model": self.folder / f"{name}-stored"} for name in SHAPES]  # and so larger heads
        cases = (("mha", 1, {}), ("mha", 2, {}), ("mha", 4, {}), ("gqa", 1, {}), ("gqa", 2, {}), ("gqa", 4, {}),
                 ("mha", 1, cross), ("mha", 4, cross), ("mha", 1, models[0]), ("mha", 1, models[1]), ("mha", 4, models[0]),
                 ("gqa", 2, models[0]), ("mha", 2, models[1]))
        for number, (name, ranks, keys) in enumerate(cases):
            with self.subTest(model=name, ranks=ranks, keys=keys):
                out, job = self.folder / f"{number}.peaks", self.job(name, **keys)
                self.run_study(job, ranks, (sys.executable, measure, out))
                peaks = [int(line) for line in out.read_text().splitlines()]
                self.assertEqual(len(peaks), ranks)

                planned = self.planned(job, ranks, "bytes_of_the_fullest_rank")["peak"]

                self.assertAlmostEqual(planned / max(peaks), 1, delta=0.2)

    def test_traffic_within_a_quarter(self):
        models = {"cross.model": self.folder / "gqa-stored"}
        for name, ranks, tensor_parallel, keys in (
                ("mha", 1, 1, {}), ("mha", 2, 1, {}), ("mha", 4, 2, {}), ("mha", 6, 1, {}), ("gqa", 2, 2, {}), ("gqa", 4, 1, {}),
                ("gqa", 6, 2, {}), ("mha", 4, 2, {"cross.streams": "q:k"}), ("gqa", 6, 1, {"cross.streams": "q:k"}), ("mha", 4, 2, models),
                ("gqa", 3, 1, models)):
            with self.subTest(model=name, ranks=ranks, tensor_parallel=tensor_parallel, keys=keys):
                job = self.job(name, **{"run.tensor_parallel": tensor_parallel, **keys})
                out = self.folder / f"{name}{ranks}{len(str(keys))}.traffic"
                self.run_study(job, ranks, environment={"LD_PRELOAD": COUNT_TRAFFIC, "HEADSPAN_TRAFFIC": str(out)})
                received = [int(line.split()[1]) for line in out.read_text().splitlines()]
                self.assertEqual(len(received), ranks)

                phases = self.planned(job, ranks, "bytes_received_by_a_rank_in_a_unit")
                planned = sum(phases.values()) - phases["load"]  # that is for several nodes: ranks of one read by themselves

                if ranks == 1:
                    self.assertEqual((planned, received), (0, [0]))
                else:
                    self.assertAlmostEqual(planned / np.mean(received), 1, delta=0.25)

    def test_work_is_what_the_definitions_ask(self):
        layers, heads, kv_heads, d, mlp = SHAPES["gqa"]
        job = self.job("gqa", **{"predict.streams": "q", "ceiling.enabled": "false"})

        flops = self.planned(job, 2, "flops_of_a_unit")

        m, q, kv, n = heads * d, heads * d, kv_heads * d, 3000
        products_of_a_layer = m * (q + 2 * kv)
        products = layers * products_of_a_layer + (layers - 1) * (q * m + 3 * m * mlp)
        attention = (layers - 1) * 2 * q * 256  # a token meets half of a sequence of 256, in two products
        self.assertAlmostEqual(flops["forward"] / (n * (2 * products + attention)), 1, delta=1e-3)
        self.assertAlmostEqual(flops["gram"] / (n * (layers * q) ** 2), 1, delta=1e-3)

        own, other = 4 * 2 * 32, 8 * 6 * 64  # columns of the KV heads of gqa and mha; in the Gram of both a head has 64
        for more, elements in (({}, (2 * own + other) ** 2), ({"cross.grams": "saved.gram.h5"}, (2 * own + other) ** 2 - other**2)):
            reference = self.job("gqa", **{"predict.streams": "k", "cross.model": self.folder / "mha-stored", **more})
            self.assertAlmostEqual(self.planned(reference, 2, "flops_of_a_unit")["gram"] / (n * elements), 1, delta=1e-3)

        job = self.job("gqa", **{"predict.streams": "k,v", "output.save_gram": "true", "tokens.heldout": 0})
        flops, memory = (self.planned(job, 2, line) for line in ("flops_of_a_unit", "bytes_of_the_fullest_rank"))

        whole = 2 * layers * (products_of_a_layer + q * m + 3 * m * mlp) + layers * 2 * q * 256
        self.assertAlmostEqual(flops["forward"] / (n * whole), 1, delta=1e-3)
        self.assertAlmostEqual(flops["gram"] / (n * (2 * (layers * kv) ** 2 + layers * q * d)), 1, delta=1e-3)
        self.assertAlmostEqual(memory["attention"] / (2 * 8 * layers * q * d), 1, delta=1e-3)

    def planned_passes(self, gib, ranks=1):
        """Returns the passes of a plan for GPUs with this much memory, and the operations of the forward."""
        code, printed, told = self.plan(*self.job("passes"), "--run.device=cuda", f"--run.gpu_memory_gib={gib}",
                                        f"--ranks={ranks}")
        self.assertEqual(code, 0, told)
        passes = re.search(r"^passes=(\d+): (.*)$", printed, re.MULTILINE)
        forward = float(re.search(r"^flops_of_a_unit .*forward=(\S+)", printed, re.MULTILINE)[1])
        peak = float(re.search(r"^bytes_of_the_fullest_gpu .*peak=(\S+)", printed, re.MULTILINE)[1])
        self.assertLessEqual(peak, gib * 2**30)
        return (passes[2].split("; ") if int(passes[1]) else []), forward

    def test_passes_are_as_few_as_the_gpu_allows(self):
        # K, Q, V of 16 layers x 16 heads x 64: a triangle of 16384 columns is 1.07 GB, with stripes 6 % more.
        (self.folder / "passes").mkdir(exist_ok=True)
        config = json.loads((self.folder / "mha" / "config.json").read_text())
        config.update(num_hidden_layers=16, hidden_size=1024, num_attention_heads=16, num_key_value_heads=16)
        (self.folder / "passes" / "config.json").write_text(json.dumps(config))

        def passes_of(*streams, parts=("fit", "heldout"), of=""):
            return [f"{stream} {part}{stripe}" for stream in streams for part in parts
                    for stripe in ([f" {i + 1}/{of} on 1x1" for i in range(of)] if of else [""])]

        whole, forward = self.planned_passes(80)
        self.assertEqual(whole, ["k,q,v fit,heldout"])
        # Beside the sums go 2.1 GiB (weights, a forward, libraries) and with them 1.4 GiB (rows and panels of a stream).
        for gib, expected, forwards in ((10, passes_of("k,q,v"), 1), (7, passes_of("k,q", "v"), 2),
                                        (5, passes_of("k", "q", "v"), 3), (4.2, passes_of("k", "q", "v", of=2), 6)):
            with self.subTest(gib=gib):
                passes, run = self.planned_passes(gib)
                self.assertEqual(passes, expected)
                self.assertAlmostEqual(run / forward, forwards, delta=1e-3)
        self.assertEqual(self.planned_passes(3)[0], [])  # not even one stripe: on the CPU
        self.assertEqual(len(self.planned_passes(7, ranks=4)[0]), 1)

        # With a reference of equal size Grams have four times the elements. Those of heads of two sizes are summed on the CPU.
        sums = {}
        for reference in ("", self.folder / "passes", self.folder / "gqa"):
            job = self.job("passes", **{"cross.model": reference} if reference else {})
            code, printed, told = self.plan(*job, "--run.device=cuda", "--run.gpu_memory_gib=80", "--ranks=1")
            self.assertEqual(code, 0, told)
            sums[reference] = float(re.search(r"^bytes_of_the_fullest_gpu .*sums=(\S+)", printed, re.MULTILINE)[1])
            self.assertIn("passes=0: with heads of two sizes" if reference == self.folder / "gqa" else "passes=1: k,q,v", printed)
        self.assertAlmostEqual(sums[self.folder / "passes"] / sums[""], 3.5, delta=0.5)  # rows and panels twice

        code, _, told = self.plan(*self.job("passes"), "--run.device=cuda", "--ranks=1")
        self.assertEqual(code, 2)
        self.assertRegex(told, r"^headspan: run.gpu_memory_gib = auto: is not known where nothing is run; ")

    def test_refuses_what_does_not_fit(self):
        job = self.job("mha")
        peak = self.planned(job, 2, "bytes_of_the_fullest_rank")["peak"] / 2**30
        self.assertEqual(self.plan(*job, "--ranks=2", f"--memory-gib={1.5 * peak}")[0], 0)

        code, _, told = self.plan(*job, "--ranks=2", f"--memory-gib={0.9 * peak}")

        self.assertEqual(code, 2)
        self.assertRegex(told, r"^headspan: run.memory_gib = \S+: is not enough: the fullest rank needs \S+ GiB; ")

    def test_study_holds_its_memory_against_that_of_a_rank(self):
        columns = 8192  # of a stream, whose Grams are far larger than all else
        self.write_config("grams", num_hidden_layers=16, hidden_size=64, intermediate_size=64,
                          num_attention_heads=16, num_key_value_heads=16, head_dim=32)
        job = self.job("grams")
        streams, parts = 3, 2  # keys, values and queries, fit and held out

        whole = streams * parts * 8 * columns * (columns + 1) / 2 / 2**30
        for ranks in (1, 2):
            with self.subTest(ranks=ranks):
                grams = whole / ranks
                run = self.run_program(ranks, "study", *job, f"--run.memory_gib={0.9 * grams:.6f}")
                self.assertEqual(run.returncode, 2, run.stderr)
                told = re.search(r"^headspan: run.memory_gib = \S+: leaves (\S+) GiB to a rank, of which the Grams alone take "
                                 r"(\S+) GiB; run on at least (\d+) ranks of a group ", run.stderr, re.MULTILINE)
                self.assertIsNotNone(told, run.stderr)
                np.testing.assert_allclose([float(told[1]), float(told[2])], [0.9 * grams, grams], atol=0.006)
                self.assertEqual(int(told[3]), ranks * 2 if ranks == 1 else 3)
                self.assertEqual(len(re.findall("^headspan: ", run.stderr, re.MULTILINE)), 1, run.stderr)

        job = self.job("mha")  # its Grams, which more ranks share, are larger than an idle process
        peak = self.planned(job, 2, "bytes_of_the_fullest_rank")["peak"] / 2**30
        for share in (0.8, 1.5):
            with self.subTest(share=share):
                run = self.run_program(2, "study", *job, f"--run.memory_gib={share * peak}")
                self.assertEqual(run.returncode, 0, run.stderr)
                told = re.search(r"^headspan: notice: \S+: the fullest rank is estimated to take (\S+) GiB, and a rank has "
                                 r"(\S+) GiB \(run.memory_gib = \S+\): the system may end the run; "
                                 r"\d+ ranks of a group that have as much each would do$", run.stderr, re.MULTILINE)
                self.assertEqual(told is not None, share < 1, run.stderr)
                if told:
                    self.assertAlmostEqual(float(told[1]) / peak, 1, delta=0.2)
                    self.assertAlmostEqual(float(told[2]) / peak, share, delta=0.02)

    def write_config(self, name, **sizes):
        config = json.loads((self.folder / "gqa" / "config.json").read_text())
        (self.folder / name).mkdir()
        (self.folder / name / "config.json").write_text(json.dumps({**config, **sizes}))

    def test_weights_of_more_bytes_than_64_bits_count(self):
        layers, m = 4096, 2**24
        self.write_config("vast", num_hidden_layers=layers, hidden_size=m, intermediate_size=m)
        job = self.job("vast", **{"predict.streams": "k"})
        _, heads, kv_heads, d, _ = SHAPES["gqa"]

        weights = self.planned(job, 1, "bytes_of_the_fullest_rank")["weights"]

        expected = 4 * m * (4096 + layers * d * (heads + 2 * kv_heads) + (layers - 1) * (d * heads + 3 * m))
        self.assertGreater(expected, 2**63)
        self.assertAlmostEqual(weights / expected, 1, delta=1e-3)
        for command in (["plan", "--ranks=1"], ["study"]):
            run = self.run_program(1, command[0], *job, "--run.memory_gib=8", *command[1:])
            self.assertEqual(run.returncode, 2)
            self.assertRegex(run.stderr, r"^headspan: run.tensor_parallel = auto: the weights of \S+ do not fit half of the "
                                         r"8.0 GiB of a rank on 1 rank; ")

    def test_weights_that_must_fit_are_those_that_are_loaded(self):
        layers, heads, d, m, vocabulary = 2, 2, 32, 64, 4096
        for name, tied in (("untied", False), ("tied", True)):
            self.write_config(name, num_hidden_layers=layers, hidden_size=m, intermediate_size=m, num_attention_heads=heads,
                              num_key_value_heads=heads, head_dim=d, tie_word_embeddings=tied)
        layer = 4 * m * heads * d + 3 * m * m + 2 * m  # Q, K, V, O; the MLP; two norms
        without_lm_head = vocabulary * m + layers * layer + m  # embedding, layers, the final norm
        values = without_lm_head + vocabulary * m / 2  # half of an untied lm_head has no room
        memory = f"--run.memory_gib={2 * 4 * values / 2**30}"  # weights may take half of it
        attention = {"output.save_gram": "true", "predict.streams": "k,v"}  # for which all layers are run
        for name, keys, needed in (("untied", attention, 2), ("tied", attention, 1), ("untied", {"predict.streams": "k,v"}, 1)):
            job = [*self.job(name, **keys), memory]
            with self.subTest(name=name, **keys):
                _, printed, _ = self.plan(*job, "--ranks=2")  # goes on to say that the program itself does not fit
                study = self.run_program(2, "study", *job)
                self.assertEqual(study.returncode, 0, study.stderr)
                chosen = [re.search(r" tensor_parallel=(\d+) ", told)[1] for told in (printed, study.stderr)]
                self.assertEqual(chosen, [str(needed)] * 2)

    def test_refuses_what_scalapack_cannot_count(self):
        # Layers of 256 query heads of 128: 32768^2 = 1.07e9 elements.
        self.write_config("wide", num_hidden_layers=1, hidden_size=256, num_attention_heads=256, num_key_value_heads=2,
                          head_dim=128)
        line = (r"headspan: run.grid = 1x1: leaves 1073741824 elements of {} on a rank, above the 1000000000 that "
                r"ScaLAPACK can count; run on 2 ranks of a group \(1x2\), or set {}\n")
        projection = {"overlap.enabled": "true", "overlap.projections": "q"}
        layer = ("the 32768 columns of a layer", "ceiling.scope = causal")
        for command, keys, told in ((["plan", "--ranks=1"], {}, layer), (["study"], {}, layer),
                                    (["plan", "--ranks=1"], {"ceiling.scope": "causal", **projection},
                                     ("a projection of 32768 x 32768", "overlap.enabled = false"))):
            with self.subTest(keys=keys, command=command):
                run = self.run_program(1, command[0], *self.job("wide", **keys), *command[1:])
                self.assertEqual(run.returncode, 2)
                self.assertRegex(run.stderr, "^" + line.format(*told))
        narrow = {**projection, "overlap.projections": "k", "ceiling.scope": "causal"}
        self.assertEqual(self.plan(*self.job("wide", **narrow), "--ranks=1")[0], 0)
        self.assertEqual(self.plan(*self.job("wide", **projection), "--ranks=2")[0], 0)

    def test_refuses_streams_of_more_columns_than_32_bits_count(self):
        self.write_config("long", num_hidden_layers=2**16, num_attention_heads=1024, num_key_value_heads=512, head_dim=64)
        code, _, told = self.plan(*self.job("long", **{"predict.streams": "k"}), "--ranks=1")
        self.assertEqual(code, 2)
        self.assertIn("headspan: predict.streams: holds a stream of 2147483648 columns; MPI and BLAS count up to 2147483647\n",
                      told)

    def plan_lines(self, *arguments):
        """Returns {name of the line: {name: number}} of a plan."""
        code, printed, told = self.plan(*arguments)
        self.assertEqual(code, 0, told)
        return {line.split(" ", 1)[0]: {name: float(value) for name, value in re.findall(r"(\w+)=([\d.e+-]+)", line)}
                for line in printed.splitlines()}

    def test_rates_decide_the_time(self):
        rates = self.folder / "rates"
        rates.write_text("# of one rank\ngram_gflops = 7\nforward_gflops=30 # of two\n\n"
                         "statistics_gflops = 5\nheads_gflops = 40\nnetwork_gb = 2\nlatency_us = 300\n")
        job = [*self.job("gqa"), "--ranks=4"]
        before, after = self.plan_lines(*job), self.plan_lines(*job, "--rates", rates)

        received, messages = before["bytes_received_by_a_rank_in_a_unit"], before["messages_to_a_rank_in_a_unit"]
        slower = {"forward": 60 / 30, "gram": 70 / 7, "heads": 20 / 40, "pairs": 20 / 5, "selection": 4, "ceiling": 4}
        for phase in slower:
            with self.subTest(phase=phase):
                network = [received[phase] / gb / 1e9 + messages[phase] * us * 1e-6 for gb, us in ((10, 5), (2, 300))]
                for plan, wait in zip((before, after), network):
                    self.assertAlmostEqual(plan["seconds_of_a_unit_on_the_network"][phase], wait, delta=2e-3 * wait)
                compute = [plan["seconds_of_a_unit"][phase] - wait for plan, wait in zip((before, after), network)]
                self.assertAlmostEqual(compute[1], compute[0] * slower[phase],
                                       delta=5e-3 * sum(network) + 5e-3 * compute[1])
        self.assertEqual((received["forward"], messages["forward"]), (0, 0))  # of one tensor-parallel rank
        self.assertGreater(messages["gram"], 2 * 3 - 1)  # two operands from three others

    def test_bad_input(self):
        rates = self.folder / "bad_rates"
        rates.write_text("speed = 7\n")
        for arguments, line in (([], "command line: --ranks: is missing; "),
                                (["--ranks=0"], "command line: --ranks = 0: is too small; "),
                                (["--ranks=3", "--run.groups=2"], "run.groups = 2: 3 ranks cannot be cut"),
                                (["--ranks=2", "--rates", rates], f"{rates}: speed = 7: is not a rate; ")):
            with self.subTest(arguments=arguments):
                code, _, told = self.plan(*self.job("gqa"), *arguments)
                self.assertEqual(code, 2)
                self.assertIn("headspan: " + line, told)
        run = self.run_program(1, "study", *self.job("gqa"), "--ranks=2")
        self.assertEqual((run.returncode, "ranks = 2: is not for study" in run.stderr), (2, True), run.stderr)


if __name__ == "__main__":
    main()
