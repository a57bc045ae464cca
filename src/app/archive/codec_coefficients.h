// The coefficients that the tokens of a sample have in the groups of a codec: runs the model over them, batch
// by batch. Not what is made of them (app/archive/codec_statistics.h, app/archive/codec_runs.h).
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "app/run/process_layout.h"
#include "app/run/sample.h"
#include "io/archive/group_coder.h"
#include "model/forward/transformer.h"

namespace headspan {

/// The tokens that a codec is fitted to.
struct CodecTokens {
  const Sample& sample;
  std::int64_t skip_first = 0;    ///< positions of each sequence that are left out
  std::int64_t batch_tokens = 0;  ///< of a forward
};

class CodecCoefficients {
 public:
  /// Called with the number of a group, those of k first, and the coefficients of some tokens: [tokens, n].
  using Use =
      std::function<void(std::size_t group, const GroupCoder& coder, const std::vector<float>& coefficients)>;

  /// The arguments must outlive it; the bases of the codec's groups must not change. Each rank of a row has
  /// the maps of some groups. Local.
  CodecCoefficients(const Transformer& model, const CodecTokens& tokens, const ProcessLayout& processes,
                    const KvCodec& codec);

  /// Calls `use` for the tokens of a part, up to about `most` of them: each group of a batch on one rank of
  /// its row. Collective over the layout's group.
  void for_tokens(bool heldout, std::int64_t most, const Use& use) const;

 private:
  struct Group {
    Stream stream;
    const CodecGroup* group;
    std::unique_ptr<GroupCoder> coder;  // null on the other ranks
  };

  const Transformer& model_;
  const CodecTokens& tokens_;
  const ProcessLayout& processes_;
  LevelCoder no_levels_;
  std::int64_t of_layer_ = 0;
  std::vector<Group> groups_;
};

}  // namespace headspan
