"""A compression plan of each algorithm, from a model and its fit and held-out sequences: combines the definitions."""
import numpy as np

import elimination
import latents
import rounding
from cached_forward import ROUNDING, Plan
from moments import moments, run

CODE_LEAST, CODE_MOST = 4, 6  # references of a target in the paper's code


def calibrate(model, fit, heldout, algorithm="latent", scope="layer", streams="kv", stored=0.25, bits="auto", references=5,
              exact_first=4, skip_first=0, ridge=0.0):
    """Returns the Plan, its expected loss (NaN where columns are rounded), and the share of the streams' bytes that it stores.

    fit, heldout: the token ids of each sequence. references: their number; for paper-text also m of Algorithm 1.
    """
    if algorithm in ROUNDING:
        groups = {s: rounding.group_of(algorithm, model.kv_heads, model.d, 4 if bits == "auto" else bits, s) for s in streams}
        plan = Plan(algorithm, exact_first, {s: [group] * model.layers for s, group in groups.items()})
        return plan, np.nan, np.mean([rounding.share_of(algorithm, group, s) for s, group in groups.items()])
    first = max(exact_first, skip_first)
    found = moments(model, fit, first)
    if algorithm == "latent":
        groups, expected_loss, share = latents.plan(latents.blocks_of(found, streams), stored, bits)
        by_stream = {s: groups[i * model.layers:(i + 1) * model.layers] for i, s in enumerate(streams)}
        return Plan(algorithm, exact_first, by_stream), expected_loss, share
    zh = run(model, heldout, first)[0]
    own = elimination.streams_of(found, streams)
    chosen = choose_heads(own, algorithm, scope, stored, references)
    most = CODE_MOST if algorithm == "paper-code" else references
    groups = {s: elimination.plan(own[s], chosen[s], most, zh[s], ridge) for s in streams}
    expected_loss = sum(group["expected_loss"] for layers in groups.values() for group in layers)
    share = 1 - sum(map(len, chosen.values())) / sum(len(stream.layer) for stream in own.values())
    return Plan(algorithm, exact_first, groups), expected_loss, share


def choose_heads(streams, algorithm, scope, stored, references):
    """Returns {s: {target: references}}. The paper's algorithms solve each stream separately."""
    if algorithm == "headspan":
        budget = elimination.heads_stored(stored, sum(len(stream.layer) for stream in streams.values()))
        if scope == "layer":
            return elimination.layer_elimination(streams, budget, references)
        return elimination.CausalElimination(streams, references).run(budget)
    rule = algorithm.removeprefix("paper-")
    least, most = (CODE_LEAST, CODE_MOST) if rule == "code" else (references, references)
    return {s: elimination.select_graph(stream.pairwise_r2(), stream.layer, 1 - stored, rule, least, most)
            for s, stream in streams.items()}
