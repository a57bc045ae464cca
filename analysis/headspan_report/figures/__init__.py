"""The figures by name, with captions that name the null. Draws and saves them all."""
from collections.abc import Callable
from dataclasses import dataclass

import matplotlib

from ..seeds import over_seeds

from . import findings, likeness, r2, reference, training
from .axes import STYLE, WIDE, Absent, files_of, save, style

BEST = "R² of a head from its best causal source (a head of the same or an earlier layer, chosen in-sample)"
PROJECTIONS = "random isotropic projections of the hidden state"


@dataclass
class Drawing:
    name: str
    title: str
    paper: str  # the figure of the paper, or ""
    draw: Callable  # table -> Figure; raises Absent
    find: Callable  # table -> finding in one sentence, or None
    caption: str


DRAWINGS = (
    Drawing("emergence", "Emergence over training", "", training.draw_emergence, findings.emergence,
            f"{BEST}: mean over heads, in-sample in colour and held-out without, and the middle half of the heads. "
            f"Dashed: what heads would give that are {PROJECTIONS}, as the best of as many sources; dotted: the noise "
            "floor p/(n-1), what pure noise gives in-sample. Then the mean effective rank of a head's covariance, since "
            "R² also rises where activations collapse, and the validation loss."),
    Drawing("references", "How predictable are the heads?", "Fig. 1, middle", r2.draw_references, findings.references,
            "Joint R² of the N best references over the heads of the last checkpoint: box 25 to 75 %, whiskers 5 to "
            "95 %, bar the median, point the mean; in-sample in colour, held-out without. Dashed: N random "
            "projections, with the noise floor where in-sample; dotted: the noise floor. References taken at random "
            "would give the null; the best of many random ones a little more."),
    Drawing("mean_by_references", "Mean R² by the number of references", "Fig. 2", r2.draw_mean_by_count,
            findings.mean_by_references,
            "Mean over heads at the last checkpoint: the N sources of largest pairwise R², and greedy forward "
            "selection. Dashed grey: N random projections; dotted grey: the noise floor."),
    Drawing("dominance", "Where the best predictors are", "Fig. 3", training.draw_dominance, findings.dominance,
            "Share of dominant links within a layer; the rest is between layers. By the rule of the paper's caption: "
            "the links into each head from its best causal sources. By that of its code: a link counts for both its "
            "ends, undirected, each pair once. Dashed, with a band of two standard deviations: random rankings, which "
            "find most links between layers because most pairs are."),
    Drawing("overlap", "Overlap dimension of the projections", "Fig. 4, left", training.draw_overlap, findings.overlap,
            "Sum over heads of the rank of their projection less the rank of all, mean over layers. Singular values "
            "count above the tolerance times the largest of the layer; the paper's is max(shape) eps32 times the "
            "largest of each matrix. Dashed: random matrices, by the law of Marchenko and Pastur."),
    Drawing("training_density", "Before and after training", "Fig. 4, right", r2.draw_training_density,
            findings.training_density,
            f"Kernel density over heads. {BEST}, in-sample, reflected at 0 and 1. Dashed: {PROJECTIONS}; dotted: the "
            "noise floor."),
    Drawing("distributions", "Distribution by the number of references", "appendix", r2.draw_distributions,
            findings.distributions,
            "Cumulative distribution and kernel density over heads of the joint in-sample R² of N references at the "
            "last checkpoint. Vertical: random projections, noise floor included."),
    Drawing("near_far", "Near and far layers", "appendix", training.draw_near_far, findings.near_far,
            "Mean in-sample R² of the causal pairs between layers, by their distance."),
    Drawing("heads", "Head by head", "appendix", r2.draw_heads, findings.heads,
            f"{BEST}, in-sample, at the last checkpoint. The line in the scale: the null."),
    Drawing("ceilings", "Ceilings: all other heads, everything earlier", "", training.draw_ceilings, findings.ceilings,
            "Mean over heads of the R² from all other heads of the layer, and from all earlier heads. With H heads of "
            "d coordinates and a hidden state of m, random projections already give (H-1) d / m."),
    Drawing("alignment", "Alignment of the heads of a layer", "", training.draw_alignment, findings.alignment,
            "Of the weights: mean squared cosine of the principal angles between the projections of two heads; of the "
            "activations: mean squared canonical correlation. Dashed: d / m, random projections."),
    Drawing("similarity", "How alike the heads are", "", likeness.draw_similarity, findings.similarity,
            "Mean over all pairs of heads of a stream, within and between layers: linear CKA, the mean squared canonical "
            "correlation, and the Procrustes distance, which is 0 for equal heads. Dashed: two random subspaces of the "
            "hidden state."),
    Drawing("layer_maps", "R² and CKA between layers", "", likeness.draw_layer_maps, findings.layer_maps,
            "At the last checkpoint. Above: the mean in-sample R² of a layer's heads, each from every head of another "
            "layer; below: the linear CKA of the two whole layers. R² counts every direction of a head alike, CKA by its "
            "variance: they differ where few directions carry most of it. The line in the scale: a random projection."),
    Drawing("scores", "What query heads attend to", "", likeness.draw_scores, findings.scores,
            "The largest score of the heads of each layer. Induction and duplicate token: mean attention to the token "
            "after the first occurrence of the query's token, and to that occurrence, where random tokens come twice. "
            "Previous token, first token: mean attention to them on the sample; entropy: of the attention, mean over the "
            "heads of a layer. Dashed: attention spread evenly."),
    Drawing("reference_training", "Over training against the reference", "", reference.draw_training, findings.reference_training,
            "R² of the reference's heads on the same tokens, held-out if there is a held-out part, mean over the heads of a "
            "layer: from the head of the checkpoint in the same layer and place, from its best head (chosen in-sample), and "
            "from all heads of its layer together. If the reference is the last checkpoint of the run, a bright cell says "
            "that the final subspace is already there. The line in the scale: what pure noise gives."),
    Drawing("reference_maps", "Two models: which layers know which", "", reference.draw_maps, findings.reference_maps,
            "At the last checkpoint that is not the reference itself: R² of the reference's heads, mean over a layer, from the "
            "best head of each layer of the checkpoint (chosen in-sample; held-out if there is a held-out part). The sentence "
            "below compares a one-to-one assignment of heads with its null, the line in the scale: what it gives if no two heads "
            "were a pair, their R² shuffled within layers after the means of target and source. No more than the null means "
            "that layers may correspond, and heads do not."))


def draw_all(table, width=WIDE):
    """Returns (drawings with their Figures, absent drawings with the reason). Runs of several seeds are drawn as their
    mean."""
    table = over_seeds(table)
    drawn, absent = [], []
    with matplotlib.rc_context(style(width)):
        for drawing in DRAWINGS:
            try:
                drawn.append((drawing, drawing.draw(table)))
            except Absent as error:
                absent.append((drawing, str(error)))
    return drawn, absent


def files_of_all(folder):
    """Returns all files that save_all may write."""
    return [file for drawing in DRAWINGS for file in files_of(folder, drawing.name)]


def save_all(drawn, folder):
    """Saves NAME.svg and NAME.png for each figure."""
    with matplotlib.rc_context(STYLE):
        for drawing, figure in drawn:
            save(figure, folder, drawing.name)
