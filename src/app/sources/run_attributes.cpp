#include "app/sources/run_attributes.h"

#include "app/job/job_file.h"
#include "app/run/library_versions.h"
#include "base/provenance.h"

namespace headspan {
namespace {

constexpr const char* kSchema = "1.0";

/// Returns the job as the result states it. If it starts from Grams, it states the point at which they were
/// captured and the precision of their products.
Job stated_job(const Job& job, const UnitEvidence& evidence) {
  Job stated = job;
  if (job.grams.paths.empty()) return stated;
  const StreamOrigin& origin = evidence.streams.front().origin;
  stated.predict.capture = origin.capture.value_or(stated.predict.capture);
  stated.predict.precision = origin.precision;
  return stated;
}

}  // namespace

NetcdfAttributes run_attributes(const UnitRun& run, const UnitEvidence& evidence) {
  const Job& job = run.job;
  const Unit& unit = run.unit;
  const Comm& group = run.processes.group();
  const std::string now = group.broadcast(iso_time_utc(), 0);
  NetcdfAttributes attributes{{"headspan_schema", std::string(kSchema)},
                              {"title", "Linear predictability of the attention heads of " + unit.model_name +
                                            (unit.name == unit.model_name ? "" : " " + unit.name)},
                              {"source", program_name()},
                              {"history", now + " headspan study"},
                              {"date_created", now},
                              {"model_name", unit.model_name},
                              {"model_type", evidence.model_type},
                              {"config_sha256", evidence.config_sha256},
                              {"weights_digest", evidence.weights_digest},
                              {"input_digest", evidence.input_digest},
                              {"checkpoint", unit.name},
                              {"init", std::string(unit.random ? "random" : "pretrained")},
                              {"step", unit.step},
                              {"training_tokens", unit.training_tokens},
                              {"training_seed", unit.training_seed},
                              {"tokens_path", job.tokens.path},
                              {"tokens_sha256", unit.tokens_sha256},
                              {"tokens_cut_digest", unit.tokens_cut_digest},
                              {"job", to_ini(stated_job(job, evidence))},
                              {"identity", unit_identity(job, unit)},
                              {"mode", word_of(predict_mode_words(), job.predict.mode)},
                              {"ranks", static_cast<std::int64_t>(group.size())},
                              {"grid", to_string(run.processes.grid().shape())},
                              {"versions", library_versions()},
                              {"git", git_id()}};
  if (unit.validation_loss) attributes.push_back({"validation_loss", *unit.validation_loss});
  if (!evidence.sample.mismatch.empty()) attributes.push_back({"tokens_mismatch", evidence.sample.mismatch});
  if (!unit.reference.empty()) {
    attributes.push_back({"reference_model", unit.reference_name});
    attributes.push_back({"reference_path", unit.reference});
    attributes.push_back({"reference_config_sha256", evidence.reference_config_sha256});
    attributes.push_back({"reference_weights_digest", evidence.reference_weights_digest});
  }
  if (!unit.revision.empty()) attributes.push_back({"revision", unit.revision});
  return attributes;
}

}  // namespace headspan
