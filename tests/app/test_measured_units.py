"""calibrate with compress.units = measured, through the program, against numpy: the divergence of a forward that replaces
the keys or values of a single layer, over the expected loss.

usage: test_measured_units.py HEADSPAN MPIEXEC [unittest's arguments]
"""
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
import cached_forward
import elimination
import latents
from calibration import choose_heads
from forward import Model
from moments import moments
from program import GOLDEN, StudyTest, main
from samples import predictable_ids

LENGTH, TOKENS, EOS, MEASURED = 40, 2000, 63, 512


class MeasuredUnits(StudyTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        ids = predictable_ids(np.random.default_rng(4), TOKENS, EOS)
        cls.fit = np.split(ids, range(LENGTH, TOKENS, LENGTH))
        cls.tokens = cls.write_tokens("fit.bin", ids)

    def calibrate(self, ranks, model, **rule):
        plan = self.folder / f"{rule['algorithm']}.h5"
        keys = {"model.path": GOLDEN / model, "model.dtype": "float64", "tokens.path": self.tokens, "tokens.eos": EOS,
                "tokens.sequence_length": LENGTH, "tokens.limit": TOKENS, "tokens.heldout": 0, "compress.plan": plan,
                "compress.units": "measured", "compress.own_text": 0, **{f"compress.{key}": value for key, value in rule.items()}}
        run = self.run_program(ranks, "calibrate", *(f"--{key}={value}" for key, value in keys.items()))
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        return cached_forward.read_plan(plan)

    def scale(self, model, blocks, number, kept):
        """The divergence with the first `kept` latents of block `number` (by stream, then layer), over the sum of the others."""
        block, s, layer = blocks[number], "kv"[number // model.layers], number % model.layers
        columns = len(block.mean)
        whole = {"band_columns": [columns], "band_bits": [16], "mean": np.zeros(columns), "bias": np.zeros(columns),
                 "projection": np.eye(columns), "lift": np.eye(columns)}
        groups = [latents.layer_plan(block, [(kept, 16)], 0) if i == layer else whole for i in range(model.layers)]
        tokens = [t[:MEASURED - LENGTH * i] for i, t in enumerate(self.fit) if LENGTH * i < MEASURED]
        return cached_forward.summary(model, tokens, cached_forward.Plan("latent", 4, {s: groups}))["kl"] / block.eigenvalues[kept:].sum()

    def test_latents_by_the_bands_of_the_first_plan(self):
        model = Model(GOLDEN / "llama_gqa")
        blocks = latents.blocks_of(moments(model, self.fit, 4), "kv")
        found = self.calibrate(2, "llama_gqa", algorithm="latent", bits=16, stored=0.5)
        columns = len(blocks[0].mean)
        threshold = np.sort([block.eigenvalues for block in blocks], axis=None)[model.layers * columns]
        for number in (0, model.layers, 2 * model.layers - 1):
            block = blocks[number]
            scale = self.scale(model, blocks, number, int((block.eigenvalues >= threshold).sum()))
            np.testing.assert_allclose(found.streams["kv"[number // model.layers]][number % model.layers]["eigenvalues"],
                                       scale * block.eigenvalues, rtol=1e-4)

    def test_heads_by_half_of_the_latents(self):
        for ranks, name, scope, stored in ((3, "olmo2_mha", "causal", 0.5), (1, "olmo2_gqa", "layer", 0.5)):
            model = Model(GOLDEN / name)
            statistics = moments(model, self.fit, 4)
            blocks = latents.blocks_of(statistics, "kv")
            scales = [self.scale(model, blocks, number, len(blocks[0].mean) // 2) for number in range(len(blocks))]
            streams = elimination.streams_of(statistics, "kv")
            for i, stream in enumerate(streams.values()):
                stream.metric *= np.take(scales[i * model.layers:(i + 1) * model.layers], stream.layer)[:, None, None]
            chosen = choose_heads(streams, "headspan", scope, stored, 2)
            found = self.calibrate(ranks, name, algorithm="headspan", scope=scope, stored=stored, references=2)
            heads = model.kv_heads
            for s, stream in streams.items():
                for layer, group in enumerate(found.streams[s]):
                    with self.subTest(model=name, stream=s, layer=layer):
                        targets = [h for h in range(heads) if layer * heads + h in chosen[s]]
                        self.assertEqual(list(group.get("targets", [])), targets)
                        losses = [stream.loss(layer * heads + h, chosen[s][layer * heads + h]) for h in targets]
                        np.testing.assert_allclose(group.get("loss", []), losses, rtol=1e-4)


if __name__ == "__main__":
    main()
