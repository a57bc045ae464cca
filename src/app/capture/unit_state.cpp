#include "app/capture/unit_state.h"

#include <algorithm>
#include <filesystem>
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

constexpr std::int64_t kMostWaiting = std::int64_t{1} << 40;  // tokens per rank
constexpr std::int64_t kFormat = 2;  // raise it whenever the layout of the file changes

std::string group_of(const GramStream& stream, std::size_t part) {
  return stream.name + (part == 0 ? "/fit" : "/heldout");
}

/// Returns the names of those lines "NAME DIGEST" of `now` that `before` lacks, separated by commas.
std::string changed_names(const std::string& before, const std::string& now) {
  std::istringstream lines(now);
  std::string names;
  for (std::string line; std::getline(lines, line);)
    if (("\n" + before).find("\n" + line + "\n") == std::string::npos)
      names += (names.empty() ? "" : ", ") + line.substr(0, line.find(' '));
  return names;
}

std::int64_t sum_of_first(std::size_t n, const std::vector<std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(n), std::int64_t{0});
}

/// Writes what a part of a stream has besides its matrix: the sums, and the rows that wait for a panel.
template <class T>
void write_part(H5File& file, const Comm& comm, const std::string& group, const GramSums& sums,
                const WaitingRows<T>& waiting) {
  const auto columns = static_cast<std::int64_t>(sums.sum.size());
  auto sum = file.create_dataset<double>(group + "/sum", {comm.size(), columns});
  sum.write_rows(sums.sum.data(), comm.rank(), 1);
  const std::vector<std::int64_t> counts = comm.all_gather(waiting.tokens);
  file.write_attribute(group, "waiting_tokens", counts);
  const std::int64_t total = sum_of_first(counts.size(), counts);
  if (total == 0) return;
  auto rows = file.create_dataset<T>(group + "/waiting", {total, columns});
  rows.write_rows(waiting.rows.data(), sum_of_first(to_size(comm.rank()), counts), waiting.tokens);
}

/// Reads the sums and the waiting rows of a part. On the layout that saved them each rank reads its own; on
/// another, rank 0 reads all sums, and the rows are divided evenly. Returns how many rows wait on all ranks
/// together.
template <class T>
std::int64_t read_part(const H5File& file, const Comm& comm, bool same_layout, const std::string& group,
                       GramSums& sums, const std::function<T*(std::int64_t)>& add_rows) {
  const auto counts = file.read_attribute<std::vector<std::int64_t>>(group, "waiting_tokens").value();
  auto sum = file.open_dataset(group + "/sum");
  if (same_layout) {
    sum.read_rows(comm.rank(), 1, sums.sum.data());
  } else {
    const std::size_t columns = sums.sum.size(), ranks = comm.is_root() ? counts.size() : 0;
    std::vector<double> all(ranks * columns);
    sum.read_rows(0, static_cast<std::int64_t>(ranks), all.data());
    for (std::size_t i = 0; i < all.size(); ++i) sums.sum[i % columns] += all[i];
  }
  const std::int64_t total = sum_of_first(counts.size(), counts);
  if (total == 0) return 0;
  const std::size_t rank = to_size(comm.rank());
  const Range rows = same_layout ? Range{sum_of_first(rank, counts), counts[rank]}
                                 : range_of(total, comm.size(), comm.rank());
  T* out = add_rows(rows.count);
  file.open_dataset(group + "/waiting").read_rows(rows.first, rows.count, out);
  return total;
}

/// Where the query sums of one tensor-parallel rank lie within those of all heads: one slice per layer.
struct QuerySlice {
  std::int64_t layers;
  std::int64_t layer_size;    ///< numbers of all heads of a layer
  std::int64_t first, count;  ///< numbers of the slice

  QuerySlice(const AttentionMoments& sums, std::int64_t tensor_parallel, std::int64_t rank)
      : layers(sums.layers),
        layer_size(sums.heads * sums.head_size * sums.head_size),
        first(layer_size / tensor_parallel * (rank % tensor_parallel)),
        count(layer_size / tensor_parallel) {}
};

void write_attention(H5File& file, const ProcessLayout& processes, const AttentionMoments& sums) {
  const Comm& comm = processes.group();
  const QuerySlice slice(sums, processes.tensor().size(), comm.rank());
  std::vector<double> query;
  for (std::int64_t l = 0; l < slice.layers; ++l) {
    const auto begin = sums.query.begin() + l * slice.layer_size + slice.first;
    query.insert(query.end(), begin, begin + slice.count);
  }
  file.create_group("attention");
  file.create_dataset<double>("attention/scale", {comm.size(), slice.layers})
      .write_rows(sums.scale.data(), comm.rank(), 1);
  const std::int64_t d = sums.head_size, heads = sums.heads / processes.tensor().size();
  file.create_dataset<double>("attention/query", {comm.size(), slice.layers, heads, d, d})
      .write_rows(query.data(), comm.rank(), 1);
}

/// Reads the attention sums. On the layout that saved them each rank reads its own; on another, rank 0 reads
/// those of all ranks.
void read_attention(const H5File& file, const Comm& comm, bool same_layout, AttentionMoments& sums) {
  auto scale_rows = file.open_dataset("attention/scale");
  auto query_rows = file.open_dataset("attention/query");
  const std::int64_t tensor_parallel = sums.heads / query_rows.shape()[2];
  const std::int64_t reads = same_layout ? 1 : query_rows.shape()[0];
  for (std::int64_t i = 0; i < reads; ++i) {
    const std::int64_t rank = same_layout ? comm.rank() : i;
    const std::int64_t rows = same_layout || comm.is_root() ? 1 : 0;
    const QuerySlice slice(sums, tensor_parallel, rank);
    std::vector<double> scale(to_size(rows * slice.layers)),
        query(to_size(rows * slice.layers * slice.count));
    scale_rows.read_rows(rank, rows, scale.data());
    query_rows.read_rows(rank, rows, query.data());
    for (std::size_t l = 0; l < scale.size(); ++l) sums.scale[l] += scale[l];
    for (std::size_t k = 0; k < query.size(); ++k)
      sums.query[k / to_size(slice.count) * to_size(slice.layer_size) + to_size(slice.first) +
                 k % to_size(slice.count)] += query[k];
  }
}

/// Returns whether the counts of a part agree with its datasets and are plausible.
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

}  // namespace

UnitState::UnitState(const UnitRun& run, std::vector<GramStream> streams, std::string contents,
                     AttentionSums* attention, const std::vector<std::string>& passes)
    : run_(run),
      path_(run.unit.state_path(run.job.output.directory)),
      streams_(std::move(streams)),
      contents_(std::move(contents)),
      attention_(attention) {
  if (passes.size() < 2) return;
  for (const std::string& pass : passes) passes_ += (passes_.empty() ? "" : "; ") + pass;
}

template <class T>
void UnitState::save_if_due(const CollectorSource<T>& source, const ItemsDone& items) const {
  const RunClock::Step step = run_.clock.next(run_.processes.group());
  if (step == RunClock::Step::go_on) return;
  save(source(), items);
  run_.clock.saved();
  if (step == RunClock::Step::save_and_stop) throw Stopped{true};
}

template <class T>
void UnitState::save(Collector<T>& collector, const ItemsDone& items) const {
  const Comm& comm = run_.processes.group();
  collector.drain();
  agree(comm, [&] {
    if (comm.is_root()) run_.inputs.check();
  });
  publish(
      comm, {path_, comm.broadcast(job_id(), 0), sha256_hex(unit_identity(run_.job, run_.unit)), run_.lock},
      [&](const std::string& temporary) {
        H5File file = H5File::create(comm, temporary);
        write(file, collector, items);
        file.close();
      },
      [&](const std::string& temporary) {
        if (!is_sound(H5File::open(temporary), static_cast<std::int64_t>(items.done.size())))
          throw Error(temporary + ": the state is incomplete after writing");
      });
  log("saved", items);
}

template <class T>
void UnitState::write(H5File& file, Collector<T>& collector, const ItemsDone& items) const {
  const Comm& comm = run_.processes.group();
  file.write_attribute("/", "format", kFormat);
  file.write_attribute("/", "identity", unit_identity(run_.job, run_.unit));
  file.write_attribute("/", "contents", contents_);
  file.write_attribute("/", "ranks", static_cast<std::int64_t>(comm.size()));
  file.write_attribute("/", "grid", to_string(run_.processes.grid().shape()));
  file.write_attribute("/", "tensor_parallel", static_cast<std::int64_t>(run_.processes.tensor().size()));
  file.write_attribute("/", "passes", passes_);
  file.write_attribute("/", "pass", static_cast<std::int64_t>(items.pass));
  const auto count = static_cast<std::int64_t>(items.done.size());
  file.create_dataset<std::uint8_t>("done", {count})
      .write_rows(items.done.data(), 0, comm.is_root() ? count : 0);
  for (std::size_t s = 0; s < streams_.size(); ++s) {
    CollectedStream<T>& stream = collector.stream(s);
    std::vector<double> shift(stream.shift);
    shift.resize(to_size(stream.columns), 0.0);  // empty before the first panel
    const auto part = [&](std::size_t p) {
      return GramPart{stream.sums[p].tokens, shift, &stream.sums[p].matrix};
    };
    write_gram(file, streams_[s], part(0),
               stream.sums.size() > 1 ? std::optional<GramPart>(part(1)) : std::nullopt);
    for (std::size_t p = 0; p < stream.sums.size(); ++p)
      write_part(file, comm, group_of(streams_[s], p), stream.sums[p], stream.waiting[p]);
  }
  if (attention_ != nullptr) write_attention(file, run_.processes, attention_->sums());
}

void UnitState::log(const char* event, const ItemsDone& items) const {
  run_.log.event(event, {{"unit", run_.unit.name},
                         {"pieces", std::to_string(std::count(items.done.begin(), items.done.end(), 1))},
                         {"file", path_}});
}

/// Returns whether the state has all that a run over `count` items reads from it.
bool UnitState::is_sound(const H5File& file, std::int64_t count) const {
  const std::int64_t pass = file.read_attribute<std::int64_t>("/", "pass").value_or(-1);
  if (pass < 0 || pass > std::count(passes_.begin(), passes_.end(), ';')) return false;
  if (!file.has("done") || file.open_dataset("done").shape() != std::vector<std::int64_t>{count})
    return false;
  for (const GramStream& stream : streams_)
    for (std::size_t part = 0; part < (stream.heldout ? 2 : 1); ++part)
      if (!is_sound_part(file, group_of(stream, part), stream.columns())) return false;
  return true;
}

/// Returns why a run cannot resume from a complete state of this job; empty if it can.
std::string UnitState::obstacle(const H5File& file, std::int64_t count) const {
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
  if (!is_sound(file, count)) return "its saved state is damaged";
  return "";
}

/// Opens the state if there is one to resume from, else logs why it cannot be used. Collective over the
/// group.
std::optional<H5File> UnitState::open_saved(std::int64_t count) const {
  const Comm& comm = run_.processes.group();
  std::string reason;  // why the state is not used; empty: it is, or there is none
  int usable = 0;
  agree(comm, [&] {
    if (!comm.is_root() || !std::filesystem::exists(path_)) return;
    if (!is_complete(path_))
      reason = "its saved state is not whole, or was changed since";
    else if (read_done(path_)->job_digest != sha256_hex(unit_identity(run_.job, run_.unit)))
      reason = "its saved state is of another job";
    usable = reason.empty() ? 1 : 0;
  });
  std::optional<H5File> file;
  if (comm.max(usable) == 1) {
    file.emplace(H5File::open(comm, path_));
    agree(comm, [&] { reason = obstacle(*file, count); });
  }
  if (reason.empty()) return file;
  run_.log.notice(run_.unit.name + " starts anew: " + reason);
  return {};
}

template <class T>
void UnitState::read(const H5File& file, Collector<T>& collector) const {
  const Comm& comm = run_.processes.group();
  const bool same_layout =
      file.read_attribute<std::int64_t>("/", "ranks") == comm.size() &&
      file.read_attribute<std::string>("/", "grid") == to_string(run_.processes.grid().shape()) &&
      file.read_attribute<std::int64_t>("/", "tensor_parallel") == run_.processes.tensor().size();
  for (std::size_t s = 0; s < streams_.size(); ++s) {
    CollectedStream<T>& stream = collector.stream(s);
    for (std::size_t p = 0; p < stream.sums.size(); ++p) {
      GramSums& sums = stream.sums[p];
      const GramPart part = read_gram(file, streams_[s], p == 0 ? "fit" : "heldout", sums.matrix);
      sums.tokens = part.tokens;
      if (part.tokens > 0) stream.shift = part.mean;
      const std::int64_t waiting =
          read_part<T>(file, comm, same_layout, group_of(streams_[s], p), sums,
                       [&](std::int64_t rows) { return collector.add_rows(s, static_cast<Part>(p), rows); });
      if (s == 0) collector.set_waiting(static_cast<Part>(p), waiting);
    }
  }
  if (attention_ != nullptr) read_attention(file, comm, same_layout, attention_->sums());
}

template <class T>
bool UnitState::resume(const CollectorSource<T>& source, ItemsDone& items) const {
  const auto count = static_cast<std::int64_t>(items.done.size());
  const std::optional<H5File> file = open_saved(count);
  if (!file) return false;
  items.pass = to_size(file->read_attribute<std::int64_t>("/", "pass").value_or(0));
  file->open_dataset("done").read_rows(0, count, items.done.data());
  read(*file, source());
  log("resumed", items);
  return true;
}

void remove_state(const Job& job, const Unit& unit) {
  const std::string path = unit.state_path(job.output.directory);
  std::filesystem::remove(path + ".done");
  std::filesystem::remove(path);
}

template void UnitState::save_if_due(const CollectorSource<double>&, const ItemsDone&) const;
template void UnitState::save_if_due(const CollectorSource<float>&, const ItemsDone&) const;
template bool UnitState::resume(const CollectorSource<double>&, ItemsDone&) const;
template bool UnitState::resume(const CollectorSource<float>&, ItemsDone&) const;

}  // namespace headspan
