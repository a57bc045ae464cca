#include "app/capture/unit_state.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <numeric>
#include <optional>
#include <sstream>

#include "base/checked.h"
#include "base/provenance.h"
#include "base/range.h"
#include "base/sha256.h"
#include "dist/comm/agreement.h"
#include "io/outputs/publish.h"

namespace headspan {
namespace {

constexpr std::int64_t kMostWaiting = std::int64_t{1} << 40;  // tokens of a rank
constexpr std::int64_t kFormat = 2;  // of the file; to be raised whenever its layout changes

std::string state_path(const Job& job, const Unit& unit) { return unit.result_path(job) + ".state"; }

std::string grid_name(const Grid& grid) {
  return std::to_string(grid.rows()) + "x" + std::to_string(grid.columns());
}

const char* part_name(std::size_t part) { return part == 0 ? "fit" : "heldout"; }

/// The names of the lines "NAME DIGEST" of `now` that `before` has not, with commas between.
std::string changed_names(const std::string& before, const std::string& now) {
  std::istringstream lines(now);
  std::string names;
  for (std::string line; std::getline(lines, line);)
    if (("\n" + before).find("\n" + line + "\n") == std::string::npos)
      names += (names.empty() ? "" : ", ") + line.substr(0, line.find(' '));
  return names;
}

/// Why the state at `path` is not one that a run of this job has saved; empty where it is.
std::string flaw_of(const std::string& path, const std::string& job_digest) {
  if (!is_complete(path)) return "its saved state is not whole, or was changed since";
  return read_done(path)->job_digest == job_digest ? "" : "its saved state is of another job";
}

/// What a part of a stream has besides its matrix: the sums and the rows that wait.
template <class T>
void write_part(H5File& file, const Comm& comm, const std::string& group, std::int64_t columns,
                const GramSums& sums, const WaitingRows<T>& waiting) {
  auto sum = file.create_dataset<double>(group + "/sum", {comm.size(), columns});
  sum.write_rows(sums.sum.data(), comm.rank(), 1);
  const std::vector<std::int64_t> counts = comm.all_gather(waiting.tokens);
  file.write_attribute(group, "waiting_tokens", counts);
  const std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  if (total == 0) return;
  auto rows = file.create_dataset<T>(group + "/waiting", {total, columns});
  rows.write_rows(waiting.rows.data(),
                  std::accumulate(counts.begin(), counts.begin() + comm.rank(), std::int64_t{0}),
                  waiting.tokens);
}

/// The sums and rows of each rank where the ranks are those that saved them; else rank 0 takes the sums, and
/// the rows are dealt out. Returns the rows of all ranks that wait.
template <class T>
std::int64_t read_part(const H5File& file, const Comm& comm, bool same_layout, const std::string& group,
                       std::int64_t columns, GramSums& sums,
                       const std::function<T*(std::int64_t)>& add_rows) {
  const auto counts = file.read_attribute<std::vector<std::int64_t>>(group, "waiting_tokens").value();
  auto sum = file.open_dataset(group + "/sum");
  const auto saved_ranks = static_cast<std::int64_t>(counts.size());
  if (same_layout) {
    sum.read_rows(comm.rank(), 1, sums.sum.data());
  } else {
    const std::int64_t mine = comm.is_root() ? saved_ranks : 0;
    std::vector<double> all(to_size(mine * columns));
    sum.read_rows(0, mine, all.data());
    for (std::size_t i = 0; i < all.size(); ++i) sums.sum[i % to_size(columns)] += all[i];
  }
  const std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  if (total == 0) return 0;
  Range mine = range_of(total, comm.size(), comm.rank());
  if (same_layout)
    mine = {std::accumulate(counts.begin(), counts.begin() + comm.rank(), std::int64_t{0}),
            counts[to_size(comm.rank())]};
  T* out = add_rows(mine.count);
  file.open_dataset(group + "/waiting").read_rows(mine.first, mine.count, out);
  return total;
}

/// Where the query sums of a rank's heads lie: the same part of every layer.
struct OwnHeads {
  std::int64_t layers, layer;  ///< how many, and numbers of one
  std::int64_t first, count;   ///< numbers of the part

  OwnHeads(const AttentionMoments& sums, std::int64_t tensor_parallel, std::int64_t rank)
      : layers(sums.layers),
        layer(sums.heads * sums.head_size * sums.head_size),
        first(layer / tensor_parallel * (rank % tensor_parallel)),
        count(layer / tensor_parallel) {}
};

void write_attention(H5File& file, const ProcessLayout& team, const AttentionMoments& sums) {
  const Comm& comm = team.group();
  const OwnHeads own(sums, team.tensor().size(), comm.rank());
  std::vector<double> query;
  for (std::int64_t l = 0; l < own.layers; ++l) {
    const auto begin = sums.query.begin() + l * own.layer + own.first;
    query.insert(query.end(), begin, begin + own.count);
  }
  file.create_group("attention");
  file.create_dataset<double>("attention/scale", {comm.size(), own.layers})
      .write_rows(sums.scale.data(), comm.rank(), 1);
  const std::int64_t d = sums.head_size, heads = sums.heads / team.tensor().size();
  file.create_dataset<double>("attention/query", {comm.size(), own.layers, heads, d, d})
      .write_rows(query.data(), comm.rank(), 1);
}

/// Each rank its own sums where the ranks are those that saved them; else rank 0 those of all.
void read_attention(const H5File& file, const ProcessLayout& team, bool same_layout, AttentionMoments& sums) {
  const Comm& comm = team.group();
  auto scale_rows = file.open_dataset("attention/scale");
  auto query_rows = file.open_dataset("attention/query");
  const std::int64_t tensor_parallel = sums.heads / query_rows.shape()[2];
  const std::int64_t rounds = same_layout ? 1 : query_rows.shape()[0];
  for (std::int64_t r = 0; r < rounds; ++r) {
    const std::int64_t rank = same_layout ? comm.rank() : r;
    const std::int64_t rows = same_layout || comm.is_root() ? 1 : 0;
    const OwnHeads own(sums, tensor_parallel, rank);
    std::vector<double> scale(to_size(rows * own.layers)), query(to_size(rows * own.layers * own.count));
    scale_rows.read_rows(rank, rows, scale.data());
    query_rows.read_rows(rank, rows, query.data());
    for (std::size_t l = 0; l < scale.size(); ++l) sums.scale[l] += scale[l];
    for (std::size_t i = 0; i < query.size(); ++i)
      sums.query[i / to_size(own.count) * to_size(own.layer) + to_size(own.first) + i % to_size(own.count)] +=
          query[i];
  }
}

}  // namespace

UnitState::UnitState(const UnitRun& run, std::vector<GramStream> streams, std::string contents,
                     AttentionSums* attention, const std::vector<std::string>& passes)
    : run_(run), streams_(std::move(streams)), contents_(std::move(contents)), attention_(attention) {
  if (passes.size() < 2) return;
  for (const std::string& pass : passes) passes_ += (passes_.empty() ? "" : "; ") + pass;
}

template <class T>
void UnitState::keep(const CollectorSource<T>& collector, const PiecesDone& pieces) const {
  const RunClock::Step step = run_.clock.next(run_.team.group());
  if (step == RunClock::Step::go_on) return;
  save(collector(), pieces);
  run_.clock.saved();
  if (step == RunClock::Step::save_and_stop) throw Stopped{true};
}

template <class T>
void UnitState::save(Collector<T>& collector, const PiecesDone& pieces) const {
  const Comm& comm = run_.team.group();
  const std::string identity = unit_identity(run_.job, run_.unit), path = state_path(run_.job, run_.unit);
  collector.drain();
  publish(
      comm, {path, comm.broadcast(job_id(), 0), sha256_hex(identity), run_.lock},
      [&](const std::string& temporary) {
        H5File file = H5File::create(comm, temporary);
        file.write_attribute("/", "format", kFormat);
        file.write_attribute("/", "identity", identity);
        file.write_attribute("/", "contents", contents_);
        file.write_attribute("/", "ranks", static_cast<std::int64_t>(comm.size()));
        file.write_attribute("/", "grid", grid_name(run_.team.grid()));
        file.write_attribute("/", "tensor_parallel", static_cast<std::int64_t>(run_.team.tensor().size()));
        file.write_attribute("/", "passes", passes_);
        file.write_attribute("/", "pass", static_cast<std::int64_t>(pieces.pass));
        const auto count = static_cast<std::int64_t>(pieces.done.size());
        file.create_dataset<std::uint8_t>("done", {count})
            .write_rows(pieces.done.data(), 0, comm.is_root() ? count : 0);
        for (std::size_t s = 0; s < streams_.size(); ++s) {
          CollectedStream<T>& stream = collector.stream(s);
          std::vector<double> shift(stream.shift);
          shift.resize(to_size(stream.columns), 0.0);  // before the first panel
          const auto part = [&](std::size_t p) {
            return GramPart{stream.sums[p].tokens, shift, &stream.sums[p].matrix};
          };
          write_gram(file, streams_[s], part(0),
                     stream.sums.size() > 1 ? std::optional<GramPart>(part(1)) : std::nullopt);
          for (std::size_t p = 0; p < stream.sums.size(); ++p)
            write_part(file, comm, streams_[s].name + "/" + part_name(p), stream.columns, stream.sums[p],
                       stream.waiting[p]);
        }
        if (attention_ != nullptr) write_attention(file, run_.team, attention_->sums());
        file.close();
      },
      [&](const std::string& temporary) { read_gram_streams(H5File::open(temporary)); });
  run_.log.event("saved", {{"unit", run_.unit.name},
                           {"pieces", std::to_string(std::count(pieces.done.begin(), pieces.done.end(), 1))},
                           {"file", path}});
}

/// Whether the numbers of a part say what can be read: rows of no more ranks than have sums, as many as wait.
bool is_sound_part(const H5File& file, const std::string& group, std::int64_t columns) {
  const auto counts = file.read_attribute<std::vector<std::int64_t>>(group, "waiting_tokens");
  if (!counts || counts->empty() || !file.has(group + "/sum")) return false;
  std::int64_t total = 0;
  for (const std::int64_t tokens : *counts) {
    if (tokens < 0 || tokens > kMostWaiting) return false;
    total += tokens;
  }
  using Shape = std::vector<std::int64_t>;
  return file.open_dataset(group + "/sum").shape() ==
             Shape{static_cast<std::int64_t>(counts->size()), columns} &&
         (total == 0 || (file.has(group + "/waiting") &&
                         file.open_dataset(group + "/waiting").shape() == Shape{total, columns}));
}

/// Whether the state holds what a run of so many pieces reads of it.
bool UnitState::is_sound(const H5File& file, std::int64_t pieces) const {
  const std::int64_t pass = file.read_attribute<std::int64_t>("/", "pass").value_or(-1);
  if (pass < 0 || pass > std::count(passes_.begin(), passes_.end(), ';')) return false;
  if (!file.has("done") || file.open_dataset("done").shape() != std::vector<std::int64_t>{pieces})
    return false;
  for (const GramStream& stream : streams_)
    for (std::size_t part = 0; part < (stream.heldout ? 2 : 1); ++part)
      if (!is_sound_part(file, stream.name + "/" + part_name(part), stream.columns())) return false;
  return true;
}

/// Why a run cannot go on from what is saved; empty where it can.
std::string UnitState::obstacle(const H5File& file, std::int64_t pieces) const {
  const auto text = [&](const char* name) {
    return file.read_attribute<std::string>("/", name).value_or("");
  };
  if (file.read_attribute<std::int64_t>("/", "format") != kFormat)
    return "its saved state is of another version of headspan";
  if (const std::string changed = changed_names(text("contents"), contents_); !changed.empty())
    return changed + " changed since its state was saved";
  if (attention_ != nullptr && !file.has("attention"))
    return "its saved state has nothing of what attention does, which output.save_gram asks for";
  if (text("passes") != passes_)
    return "its saved state was summed in other passes over the tokens than this run takes";
  if (!is_sound(file, pieces)) return "its saved state is damaged";
  return "";
}

template <class T>
PiecesDone UnitState::resume(const CollectorSource<T>& source, std::int64_t count) const {
  const Comm& comm = run_.team.group();
  const std::string path = state_path(run_.job, run_.unit);
  PiecesDone pieces{0, std::vector<std::uint8_t>(to_size(count), 0)};
  int there = 0;
  agree(comm, [&] {
    if (!comm.is_root() || !std::filesystem::exists(path)) return;
    const std::string flaw = flaw_of(path, sha256_hex(unit_identity(run_.job, run_.unit)));
    there = flaw.empty() ? 1 : 0;
    if (!flaw.empty()) run_.log.notice(run_.unit.name + " starts anew: " + flaw);
  });
  if (comm.max(there) == 0) return pieces;
  const H5File file = H5File::open(comm, path);
  std::string why;
  agree(comm, [&] { why = obstacle(file, count); });
  if (!why.empty()) {
    run_.log.notice(run_.unit.name + " starts anew: " + why);
    return pieces;
  }
  pieces.pass = to_size(file.read_attribute<std::int64_t>("/", "pass").value_or(0));
  file.open_dataset("done").read_rows(0, count, pieces.done.data());
  Collector<T>& collector = source();
  const bool same_layout =
      file.read_attribute<std::int64_t>("/", "ranks") == comm.size() &&
      file.read_attribute<std::string>("/", "grid") == grid_name(run_.team.grid()) &&
      file.read_attribute<std::int64_t>("/", "tensor_parallel") == run_.team.tensor().size();
  for (std::size_t s = 0; s < streams_.size(); ++s) {
    CollectedStream<T>& stream = collector.stream(s);
    for (std::size_t p = 0; p < stream.sums.size(); ++p) {
      GramSums& sums = stream.sums[p];
      const GramPart part = read_gram(file, streams_[s], part_name(p), sums.matrix);
      sums.tokens = part.tokens;
      if (part.tokens > 0) stream.shift = part.mean;
      const std::int64_t waiting =
          read_part<T>(file, comm, same_layout, streams_[s].name + "/" + part_name(p), stream.columns, sums,
                       [&](std::int64_t rows) { return collector.add_rows(s, static_cast<Part>(p), rows); });
      if (s == 0) collector.set_waiting(static_cast<Part>(p), waiting);
    }
  }
  if (attention_ != nullptr) read_attention(file, run_.team, same_layout, attention_->sums());
  run_.log.event("resumed",
                 {{"unit", run_.unit.name},
                  {"pieces", std::to_string(std::count(pieces.done.begin(), pieces.done.end(), 1))},
                  {"file", path}});
  return pieces;
}

void remove_state(const Job& job, const Unit& unit) {
  const std::string path = state_path(job, unit);
  std::filesystem::remove(path + ".done");
  std::filesystem::remove(path);
}

template void UnitState::keep(const CollectorSource<double>&, const PiecesDone&) const;
template void UnitState::keep(const CollectorSource<float>&, const PiecesDone&) const;
template PiecesDone UnitState::resume(const CollectorSource<double>&, std::int64_t) const;
template PiecesDone UnitState::resume(const CollectorSource<float>&, std::int64_t) const;

}  // namespace headspan
