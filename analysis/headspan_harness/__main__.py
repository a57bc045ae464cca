"""The command headspan-harness: the command line of lm-evaluation-harness, with headspan as the model.

Metrics of compressed caches by the harness itself. In one command:

    headspan-harness --tasks hellaswag --model_args pretrained=MODEL \\
      "command=mpirun -n 4 build/release/headspan evaluate --evaluate.plan plan.h5 --evaluate.cache compressed"

or in two passes around a run of headspan, for example on a cluster:

    headspan-harness --tasks hellaswag --model_args pretrained=MODEL requests=FOLDER
    headspan evaluate --model.path MODEL --evaluate.requests FOLDER/requests.jsonl ... --evaluate.answers ANSWERS
    headspan-harness --tasks hellaswag --model_args pretrained=MODEL answers=ANSWERS

The first pass prints the command between them, and reports nothing. Further --model_args: tokenizer, max_length,
add_bos_token, as of the harness' hf model. All other options are those of `lm_eval run`:
"""
import sys

from headspan.error import exit_code


def main(words=None):
    words = sys.argv[1:] if words is None else words
    if not words or words[0] in ("-h", "--help"):
        print(__doc__)
        words = ["--help"]
    return exit_code("headspan-harness", "'./analysis[harness]'", lambda: evaluate(words))


def evaluate(words):
    from lm_eval.__main__ import cli_evaluate

    from . import model  # noqa: F401, registers headspan
    sys.argv = ["headspan-harness", "run", "--model", "headspan", *words]
    cli_evaluate()
    return 0


if __name__ == "__main__":
    sys.exit(main())
