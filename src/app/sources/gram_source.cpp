#include "app/sources/gram_source.h"

#include "app/job/job_rules.h"
#include "app/sources/merge_grams.h"
#include "app/sources/read_activations.h"
#include "app/sources/run_model.h"
#include "app/sources/value_range.h"
#include "io/outputs/publish.h"

namespace headspan {
namespace {

UnitEvidence read_evidence(const Job& job, const Unit& unit, const Team& team, RunClock& clock,
                           const Log& log, Profile& profile) {
  if (unit.kind == Unit::Kind::model) return run_model(job, unit, team, clock, log, profile);
  const Profile::Phase phase = profile.enter("read");
  if (unit.kind == Unit::Kind::activations) return read_activations(job, unit, team, clock, log);
  check_done(team.group(), job.grams.paths, log);
  UnitEvidence evidence = merge_grams(job, team, saves_attention(job));
  tell(evidence.sample, log);
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

const std::string& source_path(const Job& job, const Unit& unit) {
  return unit.kind == Unit::Kind::grams ? job.grams.paths.front() : unit.path;
}

UnitEvidence gather_evidence(const Job& job, const Unit& unit, const Team& team, RunClock& clock,
                             const Log& log, Profile& profile) {
  UnitEvidence evidence = read_evidence(job, unit, team, clock, log, profile);
  check_value_range(team.group(), source_path(job, unit), evidence);
  return evidence;
}

}  // namespace headspan
