#include "app/sources/reference_grams.h"

#include <algorithm>
#include <cmath>

#include "app/capture/capture_setup.h"
#include "app/sources/merge_grams.h"
#include "base/checked.h"
#include "base/printable.h"
#include "dist/comm/agreement.h"
#include "io/outputs/publish.h"

namespace headspan {
namespace {

const char* const kRemedy = "save them again by a study of the reference with these keys, or leave it out";

/// Throws InputError unless a stream of the file was captured and computed as the unit's is.
void check_stream(const std::string& path, const GramStream& found, const GramStream& wanted) {
  const auto check = [&](const char* what, const std::string& here, const std::string& there) {
    if (here != there)
      throw InputError(path, found.name + " " + what, printable(here), "this study has " + there, kRemedy);
  };
  check("capture", found.capture, wanted.capture);
  check("forward_dtype", found.forward_dtype, wanted.forward_dtype);
  check("precision", found.precision, wanted.precision);
  check("skip_first", std::to_string(found.skip_first), std::to_string(wanted.skip_first));
  check("heldout part", found.heldout ? "present" : "absent", wanted.heldout ? "present" : "absent");
  if (found.layer != wanted.layer || found.head != wanted.head || found.head_size != wanted.head_size)
    throw InputError(path, found.name, "", "has other heads than the reference", kRemedy);
}

/// Throws InputError if the means of the second of two streams are not those of the file's Gram: a coordinate
/// may differ by a thousandth of its standard deviation, which other tokens exceed.
void check_means(const std::string& path, const std::string& stream, const HeadLayout& layout,
                 const HeadGram& both, const HeadGram& file, const std::vector<double>& squares) {
  constexpr double kShare = 1e-3;
  const std::int64_t wide = layout.head_size, d = layout.sizes ? layout.sizes->back() : wide;
  bool same = both.tokens == file.tokens;
  for (std::size_t j = 0; same && j < file.mean.size(); ++j) {
    const auto column = static_cast<std::int64_t>(j);
    const double here = both.mean[to_size((layout.second + column / d) * wide + column % d)],
                 spread = std::sqrt(squares[j] / static_cast<double>(file.tokens));
    same = std::abs(here - file.mean[j]) <= kShare * (spread + std::abs(here));
  }
  if (!same)
    throw InputError(path, stream, "", "is of other tokens or other held-out sequences than this study",
                     kRemedy);
}

}  // namespace

void check_reference_grams(const std::string& path, const Job::Predict& predict, const Job::Tokens& tokens,
                           const Unit& unit, const ModelInput& reference, bool heldout) {
  const H5File file = H5File::open(path);
  const auto check = [&](const char* name, const std::string& wanted) {
    const std::string found = file.read_attribute<std::string>("/", name).value_or("");
    if (!wanted.empty() && found != wanted)
      throw InputError(path, name, printable(found.substr(0, 12)), "this study has " + wanted.substr(0, 12),
                       kRemedy);
  };
  check("config_sha256", reference.config_sha256);
  check("tokens_sha256", unit.tokens_sha256);
  check("tokens_cut_digest", unit.tokens_cut_digest);
  const std::vector<GramStream> streams = read_known_streams(file);
  StreamOrigin origin{
      {}, predict.capture, reference.dtype, predict.product(reference.dtype), tokens.skip_first};
  for (const Stream stream : predict.streams) {
    origin.stream = stream;
    const GramStream wanted = gram_stream(origin, stream_layout(reference.config, stream), heldout);
    const auto found = std::find_if(streams.begin(), streams.end(),
                                    [&](const GramStream& saved) { return saved.name == wanted.name; });
    if (found == streams.end())
      throw InputError(path, wanted.name, "", "is missing, and this study predicts it", kRemedy);
    check_stream(path, *found, wanted);
  }
}

void read_reference_grams(const std::string& path, const UnitRun& run, UnitEvidence& evidence) {
  const Comm& group = run.processes.group();
  check_done(group, {path}, run.log);
  UnitEvidence saved = merge_grams({path}, run.job.predict, run.processes, false);
  agree(group, [&] {
    if (saved.weights_digest != evidence.reference_weights_digest)
      throw InputError(path, "weights_digest", printable(saved.weights_digest.substr(0, 12)),
                       "the reference has " + evidence.reference_weights_digest.substr(0, 12), kRemedy);
  });
  for (StreamEvidence& both : evidence.streams) {
    if (both.origin.reference == ReferenceSide::none) continue;
    const auto own = std::find_if(saved.streams.begin(), saved.streams.end(), [&](const StreamEvidence& s) {
      return s.origin.stream == both.origin.stream;
    });
    const auto set = [&](HeadGram& gram, const HeadGram& file) {
      const std::vector<double> squares = diagonal(file.matrix);
      agree(group, [&] { check_means(path, own->origin.name(), both.layout, gram, file, squares); });
      set_second_stream(gram, both.layout, file);
    };
    set(both.grams->fit, own->grams->fit);
    if (both.grams->heldout) set(*both.grams->heldout, *own->grams->heldout);
    own->grams.reset();
  }
}

}  // namespace headspan
