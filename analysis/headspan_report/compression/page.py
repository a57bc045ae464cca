"""Makes one self-contained page of plans and their evaluations: loss against bytes, a table, keys against values,
calibration against evaluation, what is stored, and recommendations. All advice is computed from the numbers on the
page."""
import math

import matplotlib
import numpy as np

from headspan import __version__
from headspan.error import InputError

from ..charts import rate_chart
from ..figures import compression as figures
from ..figures.axes import WIDE, files_of, save, style
from ..figures.selection import LETTERS
from ..page import as_json, environment, picture, plot_library, template_text
from .plan import STREAMS, UNCALIBRATED, domain_of, weights_of

CONTEXTS = (512, 2048, 8192)  # tokens, for which the table counts all bytes
LIMITS = (0.5, 0.27, 0.16)  # shares of the bytes for which the page makes recommendations, descending
ROUNDING = 1e-9
TEXT_CAPTION = ("Both streams compressed: KL to the full cache with its standard error, and perplexity, of which the "
                "bars are the standard error of the text's mean loss, which all methods share, so that they say "
                "nothing of the differences between methods. Dashed grey: the full cache.")


ARCHIVE_CAPTION = (" Archives are not read in place: keys and values of a prompt that attended to itself as it is are coded as "
                   "a whole, and each token counts as the first one behind them. Their share counts what is coded.")


def texts_of(runs):
    """Returns the texts, those of a calibration's own domain first."""
    texts = dict.fromkeys(text for run in runs for text in run.texts)
    return sorted(texts, key=lambda text: not any(run.own(text) for run in runs))


def calibrations_of(runs):
    """Returns the domains that the plans were calibrated on."""
    return sorted({run.plan.calibration for run in runs if run.plan.calibration})


def has_curve(runs, text):
    """Returns whether a plan of both streams was evaluated on the text."""
    return any(run.kl(text) and run.plan.streams == "k,v" for run in runs)


def with_error(value, error):
    """Formats a value with at least four decimals, and as many as the first digit of the error needs; a dash if there
    is no error."""
    if error is None:
        return f"{value:.6f} ± –"
    digits = max(4, -math.floor(math.log10(error))) if error > 0 else 6
    return f"{value:.{digits}f} ± {error:.{digits}f}"


def loss_cells(run, text):
    """Returns KL and the change of loss on a text, each with its error."""
    found = run.texts.get(text)
    if not found:
        return ["–", "–"]
    error = found["dloss_se"]
    return [with_error(found["kl"], found["kl_se"]),
            f"{found['dloss']:+.4f} ± {'–' if error is None else f'{error:.4f}'}"]


def speed_cells(run):
    """Returns decoded tokens per second, those of the full cache, and the ratio."""
    own, full = (run.summary["tokens_per_second"].get(name) for name in ("decode", "full_decode"))
    ratio = f"{own / full:.2f}" if own and full else "–"
    return [*(f"{speed:.4g}" if speed else "–" for speed in (own, full)), ratio]


def byte_cells(run):
    """Returns bytes per token: stored and read (of the full cache's) by the plan, for 16-bit numbers, and allocated."""
    stored, full = (run.summary["bytes_per_token"].get(name) for name in ("stored", "full"))
    allocated = f"{stored:.0f} of {full:.0f}" if stored and full else "–"
    plan = run.plan
    return [f"{plan.bytes_stored:.0f} of {plan.bytes_full:.0f}", f"{plan.bytes_read:.0f} ({read_ratio(plan):.3f})",
            allocated]


def read_ratio(plan):
    """Returns the bytes that a decode step reads, relative to the full cache."""
    return plan.bytes_read / plan.bytes_full


def method_cells(run, several):
    """Returns algorithm, domain of the calibration (if there are several), and streams."""
    simulated = "" if run.summary["cache"] == "compressed" else f" ({run.summary['cache']})"
    calibration = [run.plan.calibration or "none"] if several else []
    return [run.method + simulated, *calibration, STREAMS[run.plan.streams]]


def table_rows(runs, texts, several):
    """Returns one row per run: both streams first, then by algorithm, largest first."""
    order = sorted(runs, key=lambda run: (list(STREAMS).index(run.plan.streams), run.plan.algorithm not in UNCALIBRATED,
                                          run.method, run.plan.calibration, -run.plan.stored))
    return [[*method_cells(run, several), f"{run.plan.stored:.3f}",
             " / ".join(f"{run.share_at(tokens):.3f}" for tokens in CONTEXTS),
             *(cell for text in texts for cell in loss_cells(run, text)), *byte_cells(run), *speed_cells(run)]
            for run in order]


def asked(run):
    """Returns what runs must have in common to differ only in their streams, or only in their calibration."""
    return run.method, round(run.plan.stored_asked, 6)


def stream_rows(runs, texts):
    """Returns rows of keys alone against values alone: method, share of the stream, text, KL of each, their ratio, KL
    of both."""
    found = {}
    for run in runs:
        found.setdefault((*asked(run), run.plan.calibration), {})[run.plan.streams] = run
    rows = []
    for (method, share, _), of in sorted(found.items(), key=lambda item: item[0]):
        for text in texts if "k" in of and "v" in of else ():
            kl = {streams: run.kl(text) for streams, run in of.items()}
            if kl["k"] and kl["v"]:
                ratio = f"{kl['k'][0] / kl['v'][0]:.2f}" if kl["v"][0] > 0 else "–"
                both = with_error(*kl["k,v"]) if kl.get("k,v") else "–"
                rows.append([method, f"{share:g}", text, with_error(*kl["k"]), with_error(*kl["v"]), ratio, both])
    return rows


def domain_rows(runs, texts):
    """Returns (cells, which of them are of the calibration's own domain): calibrated on (row), KL on each text
    (column)."""
    rows = []
    for run in sorted(runs, key=lambda run: (*asked(run), run.plan.calibration)):
        if run.plan.streams == "k,v" and run.plan.calibration:
            kl = [with_error(*run.kl(text)) if run.kl(text) else "–" for text in texts]
            rows.append(([run.method, f"{run.plan.stored:.3f}", run.plan.calibration, *kl],
                         [False] * 3 + [run.own(text) for text in texts]))
    return rows


def named(run, several=False):
    """Returns what the advice calls a run."""
    words = [run.method] + ([STREAMS[run.plan.streams]] if run.plan.streams != "k,v" else [])
    words += [f"calibrated on {run.plan.calibration}"] if several and run.plan.calibration else []
    return f"{', '.join(words)} ({run.plan.stored:.3f} of the bytes)"


def as_told(run, text, several=False):
    return f"{named(run, several)} with KL {with_error(*run.kl(text))}"


def close(runs, best, text):
    """Returns the runs of other methods within two standard errors of the difference from the best run; none if there
    are no errors."""
    kl, error = best.kl(text)
    return [run for run in runs if run.method != best.method and None not in (error, run.kl(text)[1])
            and run.kl(text)[0] - kl <= 2 * math.hypot(error, run.kl(text)[1])]


def advice_on(runs, text, several):
    """Returns sentences: which run has the lowest KL on the text at each limit, how int8 compares with methods that
    keep 16 bits, what heads read."""
    runs = [run for run in as_stored(runs) if run.kl(text)]
    sentences = []
    for best, limits in best_within(runs, text):
        if best is None:
            sentences.append(f"Nothing here stores {limits[0]:g} of the bytes or less.")
            continue
        words = " and ".join(f"{limit:g}" for limit in limits)
        sentence = f"At or below {words} of the bytes take {as_told(best, text, several)}"
        others = close(within(runs, limits[0]), best, text)
        if others:
            sentence += "; within two standard errors of it: " + ", ".join(named(run, several) for run in others)
        sentences.append(sentence + ".")
    return sentences + int8_sentences(runs, text, several) + read_sentences(runs, text, several)


def as_stored(runs):
    """Returns the runs that keep nothing beside the first tokens as it was; all runs if there is none."""
    return [run for run in runs if not run.mode] or runs


def within(runs, limit):
    return [run for run in runs if run.plan.stored <= limit + ROUNDING]


def best_within(runs, text):
    """Returns [(run of lowest KL, the limits within which it is that)], limits descending; None as run if none is
    within them."""
    found = []
    for limit in LIMITS:
        best = min(within(runs, limit), key=lambda run: run.kl(text)[0], default=None)
        if found and found[-1][0] is best:
            found[-1][1].append(limit)
        else:
            found.append((best, [limit]))
    return found


def int8_sentences(runs, text, several):
    """Compares int8 with the methods that store whole 16-bit numbers in at most as many bytes as int8."""
    int8 = next((run for run in runs if run.plan.method == "int8" and run.plan.streams == "k,v"), None)
    whole = [run for run in runs if int8 and run.plan.sixteen_bits and run.plan.stored <= int8.plan.stored + ROUNDING]
    if int8 is None or not whole:
        return []
    best = min(whole, key=lambda run: run.kl(text)[0])
    if int8.kl(text)[0] < best.kl(text)[0]:
        return [f"At half the bytes plain {as_told(int8, text)} beats every method that stores 16-bit numbers; the "
                f"best of them is {as_told(best, text, several)}."]
    return [f"At half the bytes int8 does not beat every method that stores 16-bit numbers: "
            f"{as_told(best, text, several)}, {as_told(int8, text)}."]


def read_sentences(runs, text, several):
    """Says if the best method that keeps whole heads of both streams reads more than the full cache."""
    heads = [run for run in runs if run.plan.keeps_heads and run.plan.streams == "k,v"]
    best = min(heads, key=lambda run: run.kl(text)[0], default=None)
    if best is None or best.plan.bytes_read <= best.plan.bytes_full:
        return []
    return [f"The best of what keeps whole heads, {named(best, several)}, reads more than the full cache: a decode "
            f"step reads {best.plan.bytes_read:.0f} bytes a token in place of {best.plan.bytes_full:.0f}, "
            f"{read_ratio(best.plan):.3f} times as many."]


def advice(runs, texts, several):
    """Returns (text, the relation of its domain to the calibration, sentences) for each text."""
    standing = {True: "of the calibration's own domain", False: "of another domain than any calibration"}
    return [(text, standing[any(run.own(text) for run in runs)], " ".join(advice_on(runs, text, several)))
            for text in texts]


def text_finding(runs, text):
    """Returns the lowest KL at each of LIMITS, relative to the full cache."""
    told = []
    for best, limits in best_within([run for run in as_stored(runs) if run.kl(text) and run.plan.streams == "k,v"], text):
        at = " and ".join(f"{limit:g}" for limit in limits)
        told.append(f"{best.kl(text)[0]:.2g} at {at} of the bytes ({best.method})" if best
                    else f"nothing stores {at} or less")
    return f"{text}: least KL {', '.join(told)}; the full cache has 0"


def kept_finding(plans):
    """Returns the heads that each method keeps, in its smallest plan of both streams, or of one stream if there is none
    of both."""
    smallest = {}
    for plan in sorted(plans, key=lambda plan: (plan.streams != "k,v", plan.stored)):
        smallest.setdefault(plan.method, plan)
    told = []
    for method, plan in smallest.items():
        kept = {stream: figures.kept_map(plan, stream) for stream in plan.stored_by}
        heads = " and ".join(f"{int(one.sum())} of {one.size} {LETTERS[stream].lower()}"
                             for stream, one in kept.items())
        told.append(f"{method} keeps {heads} at {plan.stored:.3f} of the bytes")
    return "; ".join(told)


def bits_finding(plans):
    """Returns the mean bits per column of the plans of both streams that store most and least."""
    both = sorted((plan for plan in plans if plan.streams == "k,v"), key=lambda plan: -plan.stored) or plans
    told = []
    for plan in both[:1] + both[1:][-1:]:
        means = {stream: sum(np.dot(one.columns, one.bits) for one in layers)
                 / (int(plan.layers) * int(plan.kv_heads) * int(plan.head_size))
                 for stream, layers in plan.stored_by.items()}
        words = " and ".join(f"{mean:.1f} for {LETTERS[stream].lower()}" for stream, mean in means.items())
        told.append(f"{words} at {plan.stored:.3f} of the bytes")
    return f"Bits a column: {'; '.join(told)}; the full cache has 16"


def archived_of(runs, archives):
    """Returns the archives of the weights of one of the runs."""
    digests = dict.fromkeys(weights_of(run.summary) for run in runs)
    return [run for digest in digests if digest for run in archives.get(digest, ())]


def draw(runs, texts, several, archived):
    """Returns [(id, title, finding, caption, Picture)] of each figure, and id -> chart. archived: what archived_of returned."""
    drawn, charts = [], {}

    def add(name, title, found, caption, make, *arguments):
        drawn.append((name, title, found, caption, picture(lambda: make(*arguments))))

    for text in texts:
        if has_curve(runs, text):
            add(f"text-{text}", "Loss against bytes", text_finding(runs, text),
                TEXT_CAPTION + (ARCHIVE_CAPTION if archived else ""), figures.draw_text, runs + archived, text, several)
            charts[f"text-{text}"] = rate_chart(runs + archived, text, several)
    plans = sorted((run.plan for run in runs),
                   key=lambda plan: (plan.method, plan.streams, plan.calibration, -plan.stored))
    heads = [plan for plan in plans if plan.keeps_heads]
    latents = [plan for plan in plans if plan.algorithm == "latent"]
    if heads:
        add("kept", "Which heads were kept", kept_finding(heads), "Blue: kept as it is; pale: read from others.",
            figures.draw_kept, heads)
    if latents:
        add("bits", "How many bits each layer has", bits_finding(latents), "Stored columns by their bits, of as many "
            "as the axis is high; what is empty is not stored.", figures.draw_bits, latents)
    return drawn, charts


def curve_files(folder):
    """Returns the files that save_curves writes."""
    return files_of(folder, "compression")


def save_curves(models, folder, archives):
    """Writes loss against bytes of all models and of their archives (read_archives), each on the first of its texts. Raises
    InputError if there is none."""
    shown = []
    for runs in models:
        text = next((text for text in texts_of(runs) if has_curve(runs, text)), None)
        if text is not None:
            shown.append((f"{runs[0].plan.model}, {text}", runs + archived_of(runs, archives), text, len(calibrations_of(runs)) > 1))
    if not shown:
        raise InputError("no figure to write: no plan compresses both keys and values")
    with matplotlib.rc_context(style(WIDE)):
        save(figures.draw_curves(shown), folder, "compression")


def model_page(runs, archives):
    """Returns what the template shows of one model."""
    texts = texts_of(runs)
    calibrations = calibrations_of(runs)
    several = len(calibrations) > 1
    plan = runs[0].plan
    drawings, charts = draw(runs, texts, several, archived_of(runs, archives))
    tokens = {text: next(run.texts[text].get("tokens", 0) for run in runs if text in run.texts) for text in texts}
    return {"name": plan.model, "type": plan.model_type, "layers": plan.layers, "kv_heads": plan.kv_heads,
            "head_size": plan.head_size, "bytes_full": f"{plan.bytes_full:.0f}", "texts": texts, "tokens": tokens,
            "calibrations": calibrations, "several": several, "advice": advice(runs, texts, several),
            "rows": table_rows(runs, texts, several), "streams": stream_rows(runs, texts),
            "domains": domain_rows(runs, texts), "drawings": drawings, "charts": as_json(charts), "count": len(runs),
            "elsewhere": [text for text in texts if domain_of(text) not in calibrations],
            "programs": sorted({str(run.plan.attributes.get("source", "headspan")) for run in runs})}


def render(models, refused, archives):
    """Returns the page as text. models: the runs of each; refused: what is left out; archives: what read_archives returned."""
    return environment().get_template("compression.html").render(
        models=[model_page(runs, archives) for runs in models], warnings=[f"not on this page: {error}" for error in refused],
        version=__version__, charts_script=template_text("charts.js"), plot=plot_library())
