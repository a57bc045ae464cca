// Choices that a job file spells as words, each an enumeration with its words. Those that lower layers know
// are defined there: Stream, Dtype, Precision, SelectionRule, CompressionAlgorithm, TokenFormat.
#pragma once

#include "base/word_list.h"

namespace headspan {

/// model.init: weights as the checkpoint stores them, or drawn anew.
enum class WeightSource { pretrained, random };

inline const WordList<WeightSource>& weight_source_words() {
  static const WordList<WeightSource> words{{"pretrained", WeightSource::pretrained},
                                            {"random", WeightSource::random}};
  return words;
}

/// predict.mode: held-out statistics of every selection, or the paper's, in sample.
enum class PredictMode { corrected, paper };

inline const WordList<PredictMode>& predict_mode_words() {
  static const WordList<PredictMode> words{{"corrected", PredictMode::corrected},
                                           {"paper", PredictMode::paper}};
  return words;
}

/// ceiling.scope: each head from all others of its layer, from every earlier head, or both.
enum class CeilingScope { layer, causal, both };

inline const WordList<CeilingScope>& ceiling_scope_words() {
  static const WordList<CeilingScope> words{
      {"layer", CeilingScope::layer}, {"causal", CeilingScope::causal}, {"both", CeilingScope::both}};
  return words;
}

/// overlap.effective: projections without the gain of q_norm and k_norm, with it, or both.
enum class GainChoice { raw, effective, both };

inline const WordList<GainChoice>& gain_words() {
  static const WordList<GainChoice> words{
      {"raw", GainChoice::raw}, {"effective", GainChoice::effective}, {"both", GainChoice::both}};
  return words;
}

/// compress.scope: references of a head in its own layer, or in earlier layers too.
enum class ReferenceScope { layer, causal };

inline const WordList<ReferenceScope>& reference_scope_words() {
  static const WordList<ReferenceScope> words{{"layer", ReferenceScope::layer},
                                              {"causal", ReferenceScope::causal}};
  return words;
}

/// compress.units: the losses of layers compared by the residual stream, or by the divergence that each was
/// measured to cause.
enum class LossUnits { residual, measured };

inline const WordList<LossUnits>& loss_units_words() {
  static const WordList<LossUnits> words{{"residual", LossUnits::residual},
                                         {"measured", LossUnits::measured}};
  return words;
}

/// compress.effort: seconds, or minutes of which the model is run over and over; automatic: by its size.
enum class Effort { automatic, quick, full };

inline const WordList<Effort>& effort_words() {
  static const WordList<Effort> words{
      {"auto", Effort::automatic}, {"quick", Effort::quick}, {"full", Effort::full}};
  return words;
}

/// evaluate.cache: what the plan stores; everything, with the plan's keys and values in place of the model's;
/// or everything as it is.
enum class CacheKind { full, simulated, compressed };

inline const WordList<CacheKind>& cache_words() {
  static const WordList<CacheKind> words{
      {"compressed", CacheKind::compressed}, {"simulated", CacheKind::simulated}, {"full", CacheKind::full}};
  return words;
}

/// evaluate.prefill: whether prompts attend to what is stored of them, or to their keys and values as they
/// are.
enum class ArchiveAlgorithm { headspan, kvtc };

inline const WordList<ArchiveAlgorithm>& archive_algorithm_words() {
  static const WordList<ArchiveAlgorithm> words{{"headspan", ArchiveAlgorithm::headspan},
                                                {"kvtc", ArchiveAlgorithm::kvtc}};
  return words;
}

enum class Prefill { compressed, exact };

inline const WordList<Prefill>& prefill_words() {
  static const WordList<Prefill> words{{"compressed", Prefill::compressed}, {"exact", Prefill::exact}};
  return words;
}

/// run.device: where models and products run.
enum class ComputeDevice { cpu, cuda };

inline const WordList<ComputeDevice>& device_words() {
  static const WordList<ComputeDevice> words{{"cpu", ComputeDevice::cpu}, {"cuda", ComputeDevice::cuda}};
  return words;
}

}  // namespace headspan
