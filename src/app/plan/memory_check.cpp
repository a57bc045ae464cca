#include "app/plan/memory_check.h"

#include <algorithm>

#include "app/plan/memory_cost.h"
#include "app/run/model_input.h"
#include "app/run/rank_resources.h"
#include "base/printable.h"
#include "base/process/memory.h"
#include "model/types/read_config.h"

namespace headspan {
namespace {

/// Returns the value of run.memory_gib for messages.
std::string memory_gib_text(const Job::Run& run) {
  return run.memory_gib ? std::to_string(*run.memory_gib) : "auto";
}

/// Returns the columns of the Grams. Those that are parts of others are there only while they are analysed.
std::vector<double> columns_of(const Job::Predict& predict, const ModelConfig& config,
                               const ModelConfig* reference) {
  std::vector<double> columns;
  for (const StreamSize& stream : stream_sizes(predict, config, reference))
    if (stream.is_summed()) columns.push_back(stream.columns);
  return columns;
}

/// Returns the unit, of at least one, whose Grams are largest.
const Unit& largest_unit(const Job::Predict& predict, const std::vector<Unit>& units) {
  const Unit* found = &units.front();
  double largest = -1;
  for (const Unit& unit : units) {
    const double bytes = gram_bytes(columns_of(predict, read_model_config(config_of(unit.path)), nullptr), 1);
    if (bytes <= largest) continue;
    largest = bytes;
    found = &unit;
  }
  return *found;
}

}  // namespace

double gram_bytes(const std::vector<double>& columns, double parts) {
  double elements = 0;
  for (const double n : columns) elements += n * (n + 1) / 2;
  return 8 * parts * elements;
}

void check_grams_fit(const Job::Run& run, double bytes, std::int64_t ranks, double memory,
                     const std::string& instead) {
  if (bytes <= real(ranks) * memory) return;
  const auto enough = static_cast<std::int64_t>(std::min(bytes / memory, 1e15)) + 1;
  throw InputError(
      "", "run.memory_gib", memory_gib_text(run),
      "leaves " + format_gib(memory, 2) + " to a rank, of which the Grams alone take " +
          format_gib(bytes / real(ranks), 2),
      "run on at least " + std::to_string(enough) + " ranks of a group that have as much each" + instead);
}

std::string check_memory(const Job& job, const std::vector<Unit>& units, const GroupShape& group,
                         double memory) {
  const Unit& unit = largest_unit(job.predict, units);
  const ModelInput input = open_model(job.model, unit.path, unit.random, false);
  const TokenCounts tokens = count_tokens(
      take_sample(job.tokens, input.config, input.config_path, unit.model_name), job.tokens.skip_first);
  std::optional<ModelConfig> reference;
  if (!unit.reference.empty()) reference = read_model_config(config_of(unit.reference));
  const ModelConfig* const beside = reference ? &*reference : nullptr;
  check_grams_fit(job.run, gram_bytes(columns_of(job.predict, input.config, beside), parts_of(tokens)),
                  group.ranks, memory, ", or take fewer streams at a time");
  const auto peak_on = [&](const GroupShape& shape) {
    MemoryCost cost = memory_cost(job, input.config, input.dtype, tokens, shape, beside);
    cost.program = peak_process_bytes();
    return cost.peak();
  };
  const double peak = peak_on(group);
  if (peak <= memory) return "";
  GroupShape enough = group;
  while (enough.ranks <= kMaxRanks / 2 && peak_on(enough) > memory)
    enough = {2 * enough.ranks, group.tensor_parallel, squarest_grid(2 * enough.ranks)};
  return printable(unit.path) + ": the fullest rank is estimated to take " + format_gib(peak, 2) +
         ", and a rank has " + format_gib(memory, 2) + " (run.memory_gib = " + memory_gib_text(job.run) +
         "): the system may end the run; " +
         (peak_on(enough) > memory
              ? "take fewer streams at a time"
              : std::to_string(enough.ranks) + " ranks of a group that have as much each would do");
}

}  // namespace headspan
