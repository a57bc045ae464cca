"""The model's tokenizer, loaded as by the harness's hf model, and the tokens that end a text."""
import json
from pathlib import Path

from headspan.error import InputError


def read_config(folder, name="config.json"):
    path = Path(folder, name)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(path, "", "", f"cannot be read ({error})", "give the model's folder as pretrained") from error


def load_tokenizer(folder, path=None):
    """Loads the tokenizer of a folder, by default the model's, or a tokenizer.json. If it does not say which tokens
    begin and end a text, config.json does."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast
    path = Path(path or folder)
    try:
        if path.is_file():
            tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(path))
        else:
            tokenizer = AutoTokenizer.from_pretrained(str(path), local_files_only=True)
    except Exception as error:  # tokenizers raises plain Exception
        raise InputError(path, "", "", f"has no tokenizer ({' '.join(str(error).split())})",
                         "a folder with the tokenizer's files, or a tokenizer.json") from error
    config = read_config(folder)
    for name in ("bos_token", "eos_token"):
        if getattr(tokenizer, name) is None and listed(config.get(f"{name}_id")):
            setattr(tokenizer, name, tokenizer.convert_ids_to_tokens(listed(config[f"{name}_id"])[0]))
    if tokenizer.eos_token is None:
        raise InputError(path, "eos_token", "", "is not said, neither here nor in config.json",
                         "give tokenizer_config.json beside the tokenizer")
    return tokenizer


def listed(value):
    """Returns an id, a list of ids or nothing as a list."""
    return [] if value is None else value if isinstance(value, list) else [value]


def end_ids(folder):
    """Returns the tokens that end a generated text besides the tokenizer's end token, which is among the stop strings
    of every request."""
    name = "generation_config.json" if Path(folder, "generation_config.json").is_file() else "config.json"
    return listed(read_config(folder, name).get("eos_token_id"))


class StopTokens:
    """Token sequences at which headspan ends a text early, and which it leaves out. They need not match all places
    where a stop string is complete, because the text is cut there afterwards; but nothing that is left out may be
    needed."""

    def __init__(self, folder, tokenizer):
        self.tokenizer, self.ends = tokenizer, end_ids(folder)
        self.size = read_config(folder).get("vocab_size", len(tokenizer))  # no other tokens are generated
        self.pieces = None  # what each token reads as
        self.known = {}

    def of(self, strings):
        key = tuple(filter(None, strings))
        if key not in self.known:
            self.known[key] = self.found(key)
        return self.known[key]

    def found(self, strings):
        if self.pieces is None:
            self.pieces = [self.read([token]) for token in range(len(self.tokenizer))]
        own = [self.tokenizer.encode(string, add_special_tokens=False) for string in strings]
        sequences = ([[end] for end in self.ends]
                     + [[token] for token, piece in enumerate(self.pieces) if is_spare(piece, strings)]
                     + [tokens for tokens in own if is_spare(self.read(tokens), strings)])
        return [list(tokens) for tokens in dict.fromkeys(map(tuple, sequences)) if max(tokens) < self.size]

    def read(self, tokens):
        """Decodes tokens inside a text."""
        before = self.tokenizer.encode("a", add_special_tokens=False)
        return self.tokenizer.decode(before + tokens).removeprefix(self.tokenizer.decode(before))


def is_spare(piece, strings):
    """Returns whether this end of a text can be left out without losing anything before the first stop string: it
    begins with one, and no earlier one can end in it, as "\\n\\n" after a "\\n"."""
    return (any(piece.startswith(string) for string in strings)
            and not any(piece.startswith(string[k:]) for string in strings for k in range(1, len(string))))
