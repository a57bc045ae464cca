#include "app/sources/gram_source.h"

#include "app/job/job_rules.h"
#include "app/sources/merge_grams.h"
#include "app/sources/read_activations.h"
#include "app/sources/run_model.h"
#include "app/sources/value_range.h"
#include "io/outputs/publish.h"

namespace headspan {
namespace {

UnitEvidence read_evidence(const UnitRun& run) {
  if (run.unit.kind == Unit::Kind::model) return run_model(run);
  const Profile::Phase phase = run.profile.enter("read");
  if (run.unit.kind == Unit::Kind::activations) return read_activations(run);
  check_done(run.processes.group(), run.job.grams.paths, run.log);
  UnitEvidence evidence =
      merge_grams(run.job.grams.paths, run.job.predict, run.processes, saves_attention(run.job));
  tell(evidence.sample, run.log);
  return evidence;
}

}  // namespace

void check_unit(const Job& job, const Unit& unit, const GridShape& grid) {
  switch (unit.kind) {
    case Unit::Kind::activations:
      return check_activations(job, unit, grid);
    case Unit::Kind::grams:
      return check_grams(job, grid);
    default:
      return check_model(job, unit, grid);
  }
}

UnitEvidence gather_evidence(const UnitRun& run) {
  UnitEvidence evidence = read_evidence(run);
  check_value_range(run.unit.path, evidence, run.processes.group());
  return evidence;
}

}  // namespace headspan
