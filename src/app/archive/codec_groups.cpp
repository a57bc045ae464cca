#include "app/archive/codec_groups.h"

#include <algorithm>
#include <numeric>

#include "app/run/run_clock.h"
#include "base/checked.h"
#include "base/range.h"
#include "stats/compression/group_basis.h"

namespace headspan {
namespace {

/// Sends a vector of `root` to all ranks. Collective.
template <class T>
void share(const Comm& comm, int root, std::vector<T>& values) {
  auto count = static_cast<std::int64_t>(values.size());
  comm.broadcast(&count, 1, root);
  values.resize(to_size(count));
  comm.broadcast(values.data(), count, root);
}

void share(const Comm& comm, int root, CodecGroup& group) {
  share(comm, root, group.whitening);
  share(comm, root, group.unwhitening);
  std::vector<char> basis(group.basis.begin(), group.basis.end());
  share(comm, root, basis);
  group.basis.assign(basis.begin(), basis.end());
  share(comm, root, group.scale);
}

class GroupFitter {
 public:
  GroupFitter(const Calibration& calibration, const std::map<Stream, std::vector<double>>& metrics,
              const GroupSize& size)
      : calibration_(calibration), metrics_(metrics), size_(size), comm_(calibration.comm()) {}

  std::vector<CodecGroup> fit(Stream stream) const {
    const std::int64_t layers = calibration_.config.layers,
                       count = (layers + size_.layers - 1) / size_.layers;
    std::vector<CodecGroup> groups;
    for (std::int64_t g = 0; g < count; ++g)
      groups.push_back(empty_group(stream, range_of(layers, count, g)));
    for (std::int64_t first = 0; first < count; first += comm_.size()) {
      stop_where_asked(comm_);
      fit_round(stream, first, groups);
    }
    return groups;
  }

 private:
  std::int64_t heads() const { return calibration_.config.kv_heads; }
  std::int64_t d() const { return calibration_.config.head_size; }

  CodecGroup empty_group(Stream stream, const Range& layers) const {
    CodecGroup group;
    group.first_layer = layers.first;
    group.layers = layers.count;
    const std::vector<double>& mean = calibration_.grams.at(stream).fit.mean;
    const auto first = mean.begin() + layers.first * heads() * d();
    group.mean.assign(first, first + layers.count * heads() * d());
    return group;
  }

  /// Fits a group on each rank and shares them. Collective.
  void fit_round(Stream stream, std::int64_t first, std::vector<CodecGroup>& groups) const {
    const std::int64_t own = first + comm_.rank(), count = static_cast<std::int64_t>(groups.size());
    std::vector<std::int64_t> columns;
    if (own < count) {
      const CodecGroup& group = groups[to_size(own)];
      columns.resize(to_size(group.layers * heads()));
      std::iota(columns.begin(), columns.end(), group.first_layer * heads());
    }
    std::vector<double> covariance = covariance_of(calibration_.grams.at(stream).fit, columns, d());
    if (own < count) set_basis(stream, std::move(covariance), groups[to_size(own)]);
    for (std::int64_t g = first; g < std::min(first + comm_.size(), count); ++g)
      share(comm_, to_int(g - first), groups[to_size(g)]);
  }

  void set_basis(Stream stream, std::vector<double> covariance, CodecGroup& group) const {
    const std::int64_t of_group = group.layers * heads();
    const auto first = metrics_.at(stream).begin() + group.first_layer * heads() * d() * d();
    GroupBasis basis = make_group_basis(std::move(covariance), {first, first + of_group * d() * d()},
                                        of_group, d(), std::min(size_.coefficients, of_group * d()));
    group.whitening.assign(basis.whitening.begin(), basis.whitening.end());
    group.unwhitening.assign(basis.unwhitening.begin(), basis.unwhitening.end());
    group.basis = std::move(basis.directions);
    group.scale = std::move(basis.scale);
  }

  const Calibration& calibration_;
  const std::map<Stream, std::vector<double>>& metrics_;
  GroupSize size_;
  const Comm& comm_;
};

}  // namespace

std::map<Stream, std::vector<CodecGroup>> fit_groups(const Calibration& calibration,
                                                     const std::map<Stream, std::vector<double>>& metrics,
                                                     const GroupSize& size) {
  const GroupFitter fitter(calibration, metrics, size);
  std::map<Stream, std::vector<CodecGroup>> groups;
  for (const auto& word : cached_stream_words()) groups[word.second] = fitter.fit(word.second);
  return groups;
}

}  // namespace headspan
