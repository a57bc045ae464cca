// The rotations of OSCAR (covariance-aware two-bit quantisation of KV caches): each KV head is stored in the
// coordinates R H, with R the eigenvectors of a second moment and H a Hadamard matrix, which spreads what the
// eigenvectors order over all columns. The second moments are, over the tokens of the fit part,
//
//   keys      E[q q^T] of the queries that read the head, after RoPE
//
//   values    E[w v v^T], w = k^T E[q q^T] k of the same token
//
// Published rotations also reorder the columns of R by reversing the bits of their numbers. This exchanges
// columns of R H, and changes nothing where a whole head shares its scale, as here.
#pragma once

#include "app/compress/calibration.h"
#include "app/run/model_input.h"
#include "app/run/process_layout.h"
#include "app/run/sample.h"
#include "model/forward/transformer.h"

namespace headspan {

/// The tokens that rotations are fitted to.
struct RotationTokens {
  const Sample& sample;
  std::int64_t skip_first = 0;    ///< positions of each sequence that are left out
  std::int64_t batch_tokens = 0;  ///< of a forward
};

/// Sets the rotations of the planned blocks, [kv_heads, d, d] for each layer of their streams, on every rank.
/// Runs the model twice, because the weights of values need the moments of all queries. Throws AgreedError
/// naming `path` if the forward overflows, Stopped on a signal to stop. Collective over the layout's group.
void set_rotations(const Transformer& model, const ModelInput& input, const std::string& path,
                   const RotationTokens& tokens, const ProcessLayout& processes, PlannedStreams& planned);

}  // namespace headspan
