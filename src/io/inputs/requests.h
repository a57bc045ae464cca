// Requests to a model and its answers, as JSON Lines:
//
//   scored      {"id": .., "context": [ids], "continuation": [ids]}  ->  {"id", "loglikelihood", "greedy"}
//
//   generated   {"id": .., "context": [ids], "max_new_tokens": n, "stop": [[ids], ..]}  ->  {"id", "tokens"}
//
// The id of a request is any JSON value; the answer repeats it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headspan {

struct ScoredRequest {
  std::string id;                          ///< as JSON text
  std::vector<std::int64_t> context;       ///< at least one token
  std::vector<std::int64_t> continuation;  ///< may be empty
};

struct GenerationRequest {
  std::string id;
  std::vector<std::int64_t> context;  ///< at least one token
  std::int64_t max_new_tokens = 0;
  std::vector<std::vector<std::int64_t>> stop;  ///< none of them empty
};

/// Reads the requests of a file, one per line that is not blank. Throws InputError naming the line, also for
/// a token that is not below `vocab_size` and for a sequence of more than `max_positions` + 1 tokens: the
/// last token is predicted but not read (max_positions 0: any length).
std::vector<ScoredRequest> read_scored_requests(const std::string& path, std::int64_t vocab_size,
                                                std::int64_t max_positions);
std::vector<GenerationRequest> read_generation_requests(const std::string& path, std::int64_t vocab_size,
                                                        std::int64_t max_positions);

/// Returns the answer as one line, with its newline.
std::string answer_line(const ScoredRequest& request, double log_likelihood, bool greedy);
std::string answer_line(const GenerationRequest& request, const std::vector<std::int64_t>& tokens);

}  // namespace headspan
