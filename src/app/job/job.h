// Job: the keys of a job file, typed, with their defaults; one struct per section. Names, meaning and allowed
// values of the keys are in one table (app/job/job_options.h). A Job does not open the files that it names,
// and makes no choice that depends on them: such keys stay `auto`, an empty optional.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "app/job/job_words.h"
#include "app/job/stored_bits.h"
#include "base/range.h"
#include "dist/matrix/grid_shape.h"
#include "io/inputs/tokens.h"
#include "io/outputs/compression_plan.h"
#include "io/stream.h"
#include "model/core/dtype.h"
#include "stats/gram/panel_values.h"
#include "stats/regression/selection.h"
#include "stats/regression/similarity.h"

namespace headspan {

using Words = std::vector<std::string>;

struct Job {
  std::string file;             ///< the job file; empty: all keys are from the command line
  std::set<std::string> given;  ///< the keys with a value; the others have their defaults

  struct Model {
    std::string path;
    std::string manifest;
    Words select{"all"};
    std::string name;
    std::vector<WeightSource> init{WeightSource::pretrained};
    std::int64_t seed = 0;
    std::optional<Dtype> dtype;
  } model;

  struct Tokens {
    std::string path;
    std::optional<TokenFormat> format;
    std::optional<RawIdType> dtype;
    std::int64_t sequence_length = 2048;
    std::int64_t limit = 30000;
    std::optional<std::vector<std::int64_t>> eos;
    double heldout = 0.25;
    std::int64_t skip_first = 0;
    std::int64_t seed = 0;
  } tokens;

  struct Activations {
    std::string path;
  } activations;

  struct Grams {
    Words paths;
  } grams;

  struct Predict {
    std::vector<Stream> streams{Stream::k, Stream::q, Stream::v};
    CapturePoint capture = CapturePoint::roped;
    std::int64_t references = 5;
    std::int64_t pool = 16;
    std::vector<SelectionRule> selection{SelectionRule::pairwise, SelectionRule::forward};
    std::vector<SimilarityMeasure> similarity;
    std::vector<StreamPair> cross;  ///< the key cross.streams
    PredictMode mode = PredictMode::corrected;
    std::optional<Precision> precision = Precision::float64;  ///< none: auto
    bool integers = false;  ///< no key: whether auto may multiply 8-bit integers

    /// Returns the precision of the products of values of `forward`; for auto the fastest one that keeps R2
    /// within 1e-7: split where it multiplies integers, but not for values in FP64, which have more digits.
    Precision product(Dtype forward) const {
      const bool split = integers && forward != Dtype::float64;
      return precision.value_or(split ? Precision::split : Precision::float64);
    }
  } predict;

  struct Cross {
    std::string model;  ///< the reference; cross.streams is Predict::cross
    std::string grams;
  } cross;

  struct Ceiling {
    bool enabled = true;
    CeilingScope scope = CeilingScope::layer;
  } ceiling;

  struct Overlap {
    bool enabled = true;
    std::vector<Stream> projections{Stream::q, Stream::k, Stream::v};
    Words tolerances{"paper", "1e-1", "1e-2", "1e-3", "1e-4"};
    GainChoice effective = GainChoice::both;
  } overlap;

  struct Attention {
    bool scores = false;
  } attention;

  struct Theory {
    std::int64_t hidden_size = 4096;
    std::int64_t head_size = 128;
    std::int64_t references = 1;
    std::int64_t trials = 100;
    std::int64_t seed = 0;
    Words results;
  } theory;

  struct Compress {
    std::vector<Stream> streams{Stream::k, Stream::v};
    double stored = 0.25;
    CompressionAlgorithm algorithm = CompressionAlgorithm::latent;
    StoredBits bits;
    std::int64_t references = 5;
    ReferenceScope scope = ReferenceScope::layer;
    std::int64_t exact_first = 4;
    std::optional<double> ridge;
    Effort effort = Effort::automatic;
    std::optional<LossUnits> units;        ///< nothing: follows from the effort
    std::optional<std::int64_t> own_text;  ///< tokens; nothing: follows from the effort
    std::string plan;
  } compress;

  struct Evaluate {
    std::string plan;
    CacheKind cache = CacheKind::compressed;
    std::int64_t exact_recent = 0;
    Prefill prefill = Prefill::compressed;
    Words texts;
    std::string requests;
    std::string generate;
    std::string answers;
    std::optional<std::int64_t> batch;
    bool reference = true;
    std::string summary;
  } evaluate;

  struct Archive {
    ArchiveAlgorithm algorithm = ArchiveAlgorithm::headspan;
    std::int64_t exact_first = 4;
    double maps = 0.1;
    std::optional<std::int64_t> group;  ///< layers; nothing: as many as maps allows, at most 16
    Effort effort = Effort::automatic;
    std::optional<std::int64_t> own_text;  ///< tokens; nothing: follows from the effort
    std::string codec;
    std::string input;
    std::string output;
    double bits = 2;
    std::optional<double> kl;
    std::int64_t first_position = 0;
    std::vector<std::int64_t> documents{0};
    std::optional<Range> tokens;  ///< nothing: all
    std::optional<Range> layers;
  } archive;

  struct Run {
    std::optional<ComputeDevice> device;
    std::int64_t groups = 1;
    std::optional<std::int64_t> tensor_parallel;
    std::optional<GridShape> grid;
    std::optional<std::int64_t> batch_tokens;
    double save_minutes = 30;
    double time_limit = 0;
    double heartbeat_seconds = 60;
    std::optional<double> memory_gib;
    std::optional<double> gpu_memory_gib;
  } run;

  struct Output {
    std::string directory;
    bool save_gram = false;
    bool overwrite = false;
  } output;
};

}  // namespace headspan
