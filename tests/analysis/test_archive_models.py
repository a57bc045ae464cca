"""A cache of transformers that is archived and comes back: the example of analysis/README.md, run as it stands, and what
the model says behind it. Exit code 77 if a package is missing.

usage: test_archive_models.py HEADSPAN MPIEXEC [unittest's arguments]
"""
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "analysis"))
from program import TESTS, TINY_OLMO2, StudyTest, main

missing = [name for name in ("torch", "transformers", "safetensors") if importlib.util.find_spec(name) is None]
if missing:
    print(f"skipped: {', '.join(missing)} missing; bash tests/analysis/harness.sh runs this test in an environment of its own")
    sys.exit(77)
import torch  # noqa: E402
import transformers  # noqa: E402

from headspan_archive import Archive, Codec  # noqa: E402
from headspan_archive.cache import load_cache, save_cache  # noqa: E402

MODEL = TINY_OLMO2 / "step3000"
PROMPT, MORE = 200, 40


def blocks_of_page():
    """Returns the code blocks of the section, in order."""
    page = (TESTS.parent / "analysis" / "README.md").read_text()
    section = page[page.index("## headspan_archive"):page.index("## Plans for other caches")]
    return re.findall(r"```(?:python|bash)\n(.*?)```", section, re.S)


class ArchiveModels(StudyTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = transformers.AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
        ids = np.fromfile(TINY_OLMO2 / "tokens" / "docs.heldout.bin", "<u2")[:PROMPT + MORE].astype(int)
        cls.prompt, cls.more = torch.tensor(ids[None]).split((PROMPT, MORE), 1)
        cls.before = os.getcwd()
        os.chdir(cls.folder)
        cls.addClassCleanup(os.chdir, cls.before)
        names = {"torch": torch, "model": cls.model, "prompt": cls.prompt, "more": cls.more}
        first, cls.commands, last = blocks_of_page()
        exec(first, names)
        commands = cls.commands.replace("MODEL", str(MODEL)).replace("FIT.bin", str(TINY_OLMO2 / "tokens" / "docs.fit.bin"))
        script = "set -e\n" + f"headspan() {{ {cls.mpiexec} -n 1 {cls.program} \"$@\"; }}\n" + commands
        run = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, timeout=300)
        assert run.returncode == 0, run.stdout + run.stderr
        exec(last, names)
        cls.tokens = names["tokens"]

    def logits_behind(self, cache):
        """Returns the logits of the tokens `more` behind the cache of the prompt."""
        with torch.no_grad():
            return self.model(self.more, past_key_values=cache).logits[0].double()

    def exact_logits(self):
        with torch.no_grad():
            return self.model(torch.cat([self.prompt, self.more], 1)).logits[0, PROMPT:].double()

    def kl(self, logits, full=None):
        exact = (self.exact_logits() if full is None else full).log_softmax(-1)
        return (exact.exp() * (exact - logits.log_softmax(-1))).sum(-1).mean().item()

    def test_the_example(self):
        self.assertEqual(self.tokens.shape, (1, PROMPT + MORE + 20))
        sizes = [(self.folder / name).stat().st_size for name in ("prompt.hsa", "prompt.safetensors")]
        self.assertLess(sizes[0] / sizes[1], 0.11, "more than 3.5 bits of 32")

    def test_what_the_model_says_behind_an_archive(self):
        again = self.logits_behind(load_cache("again.safetensors"))
        self.assertLess(self.kl(again), 0.01)
        self.assertGreater(self.kl(again), 1e-7, "nothing was lost")
        given = self.logits_behind(load_cache("prompt.safetensors"))
        self.assertLess(self.kl(given), 1e-9)

    def test_decoding_without_the_program(self):
        """The program may round coefficients to a sixteenth of a step: 1 / 256 of what rounding to steps has lost."""
        theirs = self.logits_behind(load_cache("again.safetensors"))
        ours = self.logits_behind(load_cache(Archive("prompt.hsa").decode(Codec("codec.h5"))))
        self.assertLess(self.kl(ours, theirs), self.kl(theirs) / 256)

    def test_types(self):
        whole = load_cache("prompt.safetensors", torch.bfloat16)
        save_cache(whole, "half.safetensors")
        for layer, expected in zip(load_cache("half.safetensors").layers, load_cache("prompt.safetensors").layers):
            self.assertEqual(layer.keys.dtype, torch.bfloat16)
            self.assertTrue(torch.equal(layer.values, expected.values.bfloat16()))

    def test_caches_that_cannot_be_archived(self):
        two = transformers.DynamicCache()
        two.update(torch.zeros(2, 1, 3, 4), torch.zeros(2, 1, 3, 4), 0)
        with self.assertRaisesRegex(ValueError, "holds 2 sequences"):
            save_cache(two, "two.safetensors")
        uneven = transformers.DynamicCache()
        for layer, tokens in enumerate((3, 2)):
            uneven.update(torch.zeros(1, 1, tokens, 4), torch.zeros(1, 1, tokens, 4), layer)
        with self.assertRaisesRegex(ValueError, "does not hold every token"):
            save_cache(uneven, "uneven.safetensors")
        self.assertFalse((self.folder / "two.safetensors").exists() or (self.folder / "uneven.safetensors").exists())


if __name__ == "__main__":
    main()
