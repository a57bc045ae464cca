#include "app/run_attributes.h"

#include <filesystem>

#include <hdf5.h>

#include "base/provenance.h"
#include "model/torch_runtime.h"

namespace headspan {
namespace {

constexpr const char* kSchema = "1.0";

}  // namespace

std::string library_versions() {
  char mpi[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(mpi, &length);
  const std::string mpi_name(mpi, static_cast<std::size_t>(length));
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return compiler() + "; " + mpi_name.substr(0, mpi_name.find(',')) + "; HDF5 " + std::to_string(major) +
         "." + std::to_string(minor) + "." + std::to_string(release) + "; LibTorch " + torch_version();
}

NetcdfAttributes run_attributes(const Job& job, const Unit& unit, const Team& team,
                                const UnitEvidence& evidence) {
  const Comm& comm = team.group();
  const std::string now = comm.broadcast(iso_time_utc(), 0);
  NetcdfAttributes attributes{
      {"headspan_schema", std::string(kSchema)},
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
      {"tokens_path", job.tokens.path},
      {"tokens_sha256", unit.tokens_sha256},
      {"job", job.to_ini()},
      {"identity", unit_identity(job, unit)},
      {"mode", job.predict.mode},
      {"ranks", static_cast<std::int64_t>(comm.size())},
      {"grid", std::to_string(team.grid().rows()) + "x" + std::to_string(team.grid().columns())},
      {"versions", library_versions()},
      {"git", git_id()}};
  if (unit.validation_loss) attributes.push_back({"validation_loss", *unit.validation_loss});
  if (!evidence.sample.mismatch.empty()) attributes.push_back({"tokens_mismatch", evidence.sample.mismatch});
  if (!unit.revision.empty()) attributes.push_back({"revision", unit.revision});
  return attributes;
}

}  // namespace headspan
