"""The harness's model `headspan`: tokenises as the harness does, and lets `headspan evaluate` answer.

The encoding of context and continuation, the prefix token and rolling windows are functions of the harness; truncation,
stop strings and decoding are those of its `hf` model, so that both give the same metrics with the same weights.
"""
import logging
import sys

from headspan.error import InputError
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.models.utils import (handle_stop_sequences, has_bos_prefix, normalize_gen_kwargs,
                                  postprocess_generated_text)
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from .exchange import GENERATED, SCORED, Answers, Pending, Program, identified
from .tokenizer import StopTokens, load_tokenizer, read_config

MAX_GEN_TOKS = 256  # as in hf, if a task does not say
UNUSED_BY_GREEDY = ("temperature", "top_p", "top_k", "min_p", "typical_p")
GREEDY = {"do_sample": False, "num_beams": 1, "repetition_penalty": 1}
ARGUMENTS = ("pretrained, one of requests, answers and command, and optionally tokenizer, max_length, add_bos_token")

log = logging.getLogger(__name__)


@register_model("headspan")
class HeadspanLM(TemplateLM):
    """--model_args: pretrained (the model's folder) and one of
      requests  folder: the requests are written there, and nothing is reported
      answers   what `headspan evaluate` answered to them
      command   `[LAUNCHER] PROGRAM evaluate [JOB.ini] [OPTION ...]`, which is run once for each type of request
    Optional: tokenizer (folder or tokenizer.json), max_length, add_bos_token."""

    def __init__(self, pretrained=None, requests=None, answers=None, command=None, tokenizer=None, max_length=None,
                 add_bos_token=None, batch_size=None, max_batch_size=None, device=None, **unknown):
        """The harness always passes batch_size, max_batch_size and device, which headspan decides itself."""
        super().__init__()
        for name, value in unknown.items():
            raise InputError("--model_args", name, value, "is unknown", ARGUMENTS)
        if pretrained is None or sum(way is not None for way in (requests, answers, command)) != 1:
            raise InputError("--model_args", "", "", "does not say what to do", ARGUMENTS)
        self.pretrained = str(pretrained)
        self.max_length = max_length or read_config(self.pretrained).get("max_position_embeddings")
        if not isinstance(self.max_length, int) or self.max_length < 1:
            raise InputError("--model_args", "max_length", self.max_length, "is no length",
                             "give a number of tokens, or max_position_embeddings in config.json")
        self.tokenizer = load_tokenizer(self.pretrained, tokenizer)
        self.stop_tokens = StopTokens(self.pretrained, self.tokenizer)
        self.add_bos_token = add_bos_token
        self.source = (Pending(str(requests), self.pretrained) if requests is not None else
                       Answers(str(answers)) if answers is not None else Program(str(command), self.pretrained))

    @property
    def eot_token_id(self):
        return self.tokenizer.eos_token_id

    @property
    def prefix_token_id(self):
        return self.eot_token_id if self.tokenizer.bos_token_id is None else self.tokenizer.bos_token_id

    @property
    def tokenizer_name(self):
        return self.tokenizer.name_or_path.replace("/", "__")

    def set_cache_hook(self, cache_hook):
        raise InputError("", "--use_cache", "", "would keep the blank answers of a first pass",
                         "leave it out; the answers are in a file already")

    def tok_encode(self, string, add_special_tokens=None, **_):
        """Encodes a string. One that begins with the begin token does not get another."""
        if add_special_tokens is None and has_bos_prefix(string, self.tokenizer.decode(self.prefix_token_id)):
            add_special_tokens = False
        return self.encode(string, add_special_tokens)

    def encode(self, string, add_special_tokens):
        special = self.add_bos_token if add_special_tokens is None else add_special_tokens
        return self.tokenizer.encode(string, **({} if special is None else {"add_special_tokens": special}))

    def ask(self, kind, requests):
        answers = self.source.ask(kind, requests)
        if self.source.is_pending:
            # The harness divides documents among ranks, and rank 0 reports. From here on this process is a rank without
            # documents, so that the harness neither computes nor prints metrics of blank answers.
            self._rank = sys.maxsize
        return answers

    def _loglikelihood_tokens(self, requests, **_):
        return [(answer["loglikelihood"], answer["greedy"]) for answer in self.ask(
            SCORED, [self.scored(context, continuation) for _, context, continuation in requests])]

    def scored(self, context, continuation):
        """Returns what the model sees: all but the last token, at most max_length of them."""
        if not 1 <= len(continuation) <= self.max_length:
            raise InputError("", "max_length", self.max_length, f"a continuation has {len(continuation)} tokens",
                             "raise it, or leave this task out")
        cut = (context + continuation)[-(self.max_length + 1):]
        if len(cut) < len(context) + len(continuation):
            log.warning("a context of %d tokens is cut to %d", len(context), len(cut) - len(continuation))
        return identified(context=cut[:-len(continuation)], continuation=continuation)

    def loglikelihood_rolling(self, requests, disable_tqdm=False):
        windows = [[make_disjoint_window(window) for window in get_rolling_token_windows(
            self.tok_encode(request.args[0]), self.prefix_token_id, self.max_length, context_len=1)]
            for request in requests]
        scores = iter(self._loglikelihood_tokens([(None, *window) for document in windows for window in document]))
        return [sum(next(scores)[0] for _ in document) for document in windows]

    def generate_until(self, requests, disable_tqdm=False):
        asked, stops = [], []
        end = self.tokenizer.decode(self.eot_token_id, skip_special_tokens=False)
        for request in requests:
            context, wanted = request.args
            wanted = normalize_gen_kwargs(wanted, MAX_GEN_TOKS)
            stops.append(handle_stop_sequences(wanted.pop("until"), end))
            length = wanted.pop("max_gen_toks")
            refuse_others_than_greedy(request.task_name, wanted)
            asked.append(identified(context=self.generation_context(context, length), max_new_tokens=length,
                                    stop=self.stop_tokens.of(stops[-1])))
        texts = [self.tokenizer.decode(answer["tokens"], skip_special_tokens=True)
                 for answer in self.ask(GENERATED, asked)]
        return [postprocess_generated_text(text, stop, None) for text, stop in zip(texts, stops, strict=True)]

    def generation_context(self, context, length):
        """Returns the last tokens of the context, so that `length` more fit. The begin token follows hf's rule for
        generation."""
        room = self.max_length - length
        if room < 1:
            raise InputError("", "max_gen_toks", length, f"leaves no context of max_length = {self.max_length} tokens",
                             "lower it with --gen_kwargs max_gen_toks=N")
        special = False if has_bos_prefix(context, self.tokenizer.bos_token) else None
        return self.encode(context, special)[-room:]

    def apply_chat_template(self, chat_history, add_generation_prompt=True):
        return self.tokenizer.apply_chat_template(
            chat_history, tokenize=False, add_generation_prompt=add_generation_prompt,
            continue_final_message=not add_generation_prompt)


def refuse_others_than_greedy(task, wanted):
    for name, value in wanted.items():
        if name not in UNUSED_BY_GREEDY and (name not in GREEDY or GREEDY[name] != value):
            raise InputError(f"task {task}", f"generation_kwargs: {name}", value,
                             "headspan only generates greedily, up to max_gen_toks tokens or a stop string",
                             "--gen_kwargs do_sample=false,temperature=0, or leave this task out")
