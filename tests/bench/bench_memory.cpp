// memory: the peak of a rank's resident memory over a whole study of K, Q and V, from a model with random
// weights to forward selection, less what the process held before, against the rank's weights and Grams: the
// matrices of the fit and of the held-out part as they are allocated, both triangles.
#include <fstream>

#include "app/capture/capture.h"
#include "app/study/analysis.h"
#include "bench/made_up_sample.h"
#include "model/types/read_config.h"

namespace headspan {
namespace {

constexpr double kAllowance = 1.2;  // of weights and Grams

/// A size of /proc/self/status. Bytes.
double process_size(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    double kib = 0;
    if (word == field + ":" && status >> kib) return 1024 * kib;
  }
  throw Error("/proc/self/status does not tell " + field);
}

double matrix_bytes(const HeadGram& gram) {
  return sizeof(double) * static_cast<double>(gram.matrix.leading()) *
         static_cast<double>(gram.matrix.local_columns());
}

/// Reports the worst rank: the one with the smallest ratio.
bool report_peak(const BenchOptions& options, const Comm& comm, const std::string& when, double before,
                 double budget, double required) {
  const double peak = process_size("VmHWM") - before;
  const double worst = comm.max(peak / budget);
  return report(options, comm,
                {"peak memory " + when + ", against weights and Grams", "GB", 1e-9 * worst * budget,
                 1e-9 * budget, 1 / worst, required});
}

}  // namespace

bool bench_memory(const BenchOptions& given, const Comm& comm) {
  const ModelConfig config = read_model_config(given.folder + "/config.json");
  const BenchOptions options = with_shape_of(config, given);
  const Sample sample = made_up_sample(options, options.tokens, config.vocab_size);
  const ProcessLayout processes(comm, 1, 1, {});
  const Log silent(false);
  Progress progress(silent, "forward", "tokens", sample.total());
  Profile profile;
  CaptureRequest request{{Stream::k, Stream::q, Stream::v}};
  request.precision = options.product();
  const Extent extent{config.layers, false};

  const double before = process_size("VmRSS");
  std::vector<StreamGrams> grams;
  {
    const Transformer model =
        Transformer::random(config, 0, {Dtype::float32, extent}, processes.tensor_device());
    grams = capture_grams<float>(model, sample, request, processes, progress, profile);
  }
  double budget = weight_bytes(config, extent, 1, Dtype::float32);
  for (const StreamGrams& stream : grams)
    budget += matrix_bytes(stream.fit) + (stream.heldout ? matrix_bytes(*stream.heldout) : 0);
  report_peak(options, comm, "of the forward and the Grams", before, budget, kNone);
  for (std::size_t s = 0; s < grams.size(); ++s)
    analyse(regression_data(stream_layout(config, request.streams[s]), FitRules{}, std::move(grams[s].fit),
                            std::move(grams[s].heldout)),
            {}, {}, profile);
  return report_peak(options, comm, "of the study", before, budget, 1 / kAllowance);
}

}  // namespace headspan
