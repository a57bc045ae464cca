#include "app/job/job_rules.h"

#include <algorithm>

#include "base/error.h"

namespace headspan {

FitRules fit_rules(const Job& job, const std::string& forward_dtype, Precision precision) {
  FitRules rules;
  rules.double_data = forward_dtype == "float64";
  rules.double_product = precision == Precision::float64;
  rules.paper = job.predict.mode == "paper";
  return rules;
}

bool saves_attention(const Job& job) {
  const std::vector<Stream>& streams = job.predict.streams;
  const auto captured = [&](Stream stream) {
    return std::find(streams.begin(), streams.end(), stream) != streams.end();
  };
  return job.output.save_gram && job.predict.capture == CapturePoint::roped && captured(Stream::k) &&
         captured(Stream::v);
}

void check_references(const Job::Predict& predict, std::int64_t heads) {
  const Job::Predict defaults;
  const auto check = [&](const char* key, std::int64_t asked, std::int64_t always) {
    if (asked > std::max(heads, always))
      throw InputError("", key, std::to_string(asked),
                       "is more than the " + std::to_string(heads) + " heads that there are",
                       "at most " + std::to_string(std::max(heads, always)));
  };
  check("predict.references", predict.references, defaults.references);
  check("predict.pool", predict.pool, defaults.pool);
}

void check_references(const Job::Compress& compress, std::int64_t layers, std::int64_t heads) {
  if (compress.algorithm != "headspan" && compress.algorithm != "paper-text") return;
  const bool in_layer = compress.algorithm == "headspan" && compress.scope == "layer";
  const std::int64_t others = (in_layer ? heads : layers * heads) - 1,
                     most = std::max(others, Job::Compress().references);
  if (compress.references > most)
    throw InputError("", "compress.references", std::to_string(compress.references),
                     "is more than the " + std::to_string(others) + " heads that can predict another",
                     "at most " + std::to_string(most));
}

}  // namespace headspan
