// Requests to a model and its answers, as JSON Lines:
//
//   scored      {"id": .., "context": [ids], "continuation": [ids]}  ->  {"id", "loglikelihood", "greedy"}
//
//   generated   {"id": .., "context": [ids], "max_new_tokens": n, "stop": [[ids], ..]}  ->  {"id", "tokens"}
//
// An id is any JSON value and comes back as it was.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headspan {

struct ScoredRequest {
  std::string id;                          ///< JSON text
  std::vector<std::int64_t> context;       ///< at least one token
  std::vector<std::int64_t> continuation;  ///< may be empty
};

struct GenerationRequest {
  std::string id;
  std::vector<std::int64_t> context;  ///< at least one token
  std::int64_t max_new_tokens = 0;
  std::vector<std::vector<std::int64_t>> stop;  ///< none of them empty
};

/// Throws InputError naming the line. Every token is below `vocab_size`, and no sequence longer than a model
/// of `max_positions` (0: any) reads and predicts.
std::vector<ScoredRequest> read_scored_requests(const std::string& path, std::int64_t vocab_size,
                                                std::int64_t max_positions);
std::vector<GenerationRequest> read_generation_requests(const std::string& path, std::int64_t vocab_size,
                                                        std::int64_t max_positions);

/// One line, with its newline.
std::string answer_line(const ScoredRequest& request, double log_likelihood, bool greedy);
std::string answer_line(const GenerationRequest& request, const std::vector<std::int64_t>& tokens);

}  // namespace headspan
