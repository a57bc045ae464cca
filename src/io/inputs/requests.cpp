#include "io/inputs/requests.h"

#include <functional>
#include <sstream>

#include "base/error.h"
#include "base/input_file.h"
#include "base/printable.h"
#include "io/json_text.h"

namespace headspan {
namespace {

using nlohmann::json;

/// One line of a file of requests.
class RequestLine {
 public:
  RequestLine(const std::string& path, std::int64_t number, const std::string& text, std::int64_t vocab_size,
              std::int64_t max_positions)
      : where_(path + " line " + std::to_string(number)),
        vocab_size_(vocab_size),
        max_positions_(max_positions) {
    object_ = parse_json(where_, text, "one request a line");
    if (!object_.is_object())
      throw InputError(where_, printable(text.substr(0, 60)), "", "is no JSON object", "one request a line");
  }

  const json& field(const char* name) const {
    const auto found = object_.find(name);
    if (found == object_.end())
      throw InputError(where_, name, "", "is missing", "see headspan evaluate --help");
    return *found;
  }

  std::string id() const { return field("id").dump(); }

  std::vector<std::int64_t> tokens(const char* name, const json& value, bool may_be_empty) const {
    if (!value.is_array() || (value.empty() && !may_be_empty))
      throw InputError(where_, name, printable(value.dump()),
                       may_be_empty ? "is no list of tokens" : "is no list of at least one token",
                       "give ids as [17, 4]");
    std::vector<std::int64_t> ids;
    for (const json& id : value) {
      if (!id.is_number_integer() || id.get<std::int64_t>() < 0 || id.get<std::int64_t>() >= vocab_size_)
        throw InputError(where_, name, printable(id.dump()),
                         "is no token of a vocabulary of " + std::to_string(vocab_size_),
                         "use the model's own tokenizer");
      ids.push_back(id.get<std::int64_t>());
    }
    return ids;
  }
  std::vector<std::int64_t> tokens(const char* name, bool may_be_empty) const {
    return tokens(name, field(name), may_be_empty);
  }

  /// Returns the stop sequences; none if the request gives none.
  std::vector<std::vector<std::int64_t>> stop() const {
    std::vector<std::vector<std::int64_t>> sequences;
    if (!object_.contains("stop") || object_["stop"].is_null()) return sequences;
    const json& list = object_["stop"];
    if (!list.is_array())
      throw InputError(where_, "stop", printable(list.dump()), "is no list of stop sequences",
                       "give lists of ids as [[17, 4]]");
    for (const json& sequence : list) sequences.push_back(tokens("stop", sequence, false));
    return sequences;
  }

  std::int64_t count(const char* name) const {
    const json& value = field(name);
    if (!value.is_number_integer() || value.get<std::int64_t>() < 0 || value.get<std::int64_t>() > 1 << 20)
      throw InputError(where_, name, printable(value.dump()), "is no number of tokens", "0 to 1048576");
    return value.get<std::int64_t>();
  }

  /// Throws InputError for a sequence that is too long for the model's positions. The last token needs none,
  /// because the model does not read it.
  void check_length(const char* name, std::size_t context, std::int64_t new_tokens) const {
    const std::int64_t length = static_cast<std::int64_t>(context) + new_tokens;
    if (max_positions_ > 0 && length > max_positions_ + 1)
      throw InputError(where_, "context, " + std::string(name), std::to_string(length) + " tokens",
                       "are more than the " + std::to_string(max_positions_) +
                           " positions that the model was made for, and the one that it predicts",
                       "shorten the context");
  }

 private:
  std::string where_;
  std::int64_t vocab_size_;
  std::int64_t max_positions_;
  json object_;
};

void for_each_line(const std::string& path, std::int64_t vocab_size, std::int64_t max_positions,
                   const std::function<void(const RequestLine&)>& use) {
  std::istringstream file(read_whole_file(path));
  std::int64_t number = 0;
  for (std::string text; std::getline(file, text);) {
    ++number;
    if (text.find_first_not_of(" \t\r") != std::string::npos)
      use({path, number, text, vocab_size, max_positions});
  }
}

}  // namespace

std::vector<ScoredRequest> read_scored_requests(const std::string& path, std::int64_t vocab_size,
                                                std::int64_t max_positions) {
  std::vector<ScoredRequest> requests;
  for_each_line(path, vocab_size, max_positions, [&](const RequestLine& line) {
    requests.push_back({line.id(), line.tokens("context", false), line.tokens("continuation", true)});
    line.check_length("continuation", requests.back().context.size(),
                      static_cast<std::int64_t>(requests.back().continuation.size()));
  });
  return requests;
}

std::vector<GenerationRequest> read_generation_requests(const std::string& path, std::int64_t vocab_size,
                                                        std::int64_t max_positions) {
  std::vector<GenerationRequest> requests;
  for_each_line(path, vocab_size, max_positions, [&](const RequestLine& line) {
    requests.push_back({line.id(), line.tokens("context", false), line.count("max_new_tokens"), line.stop()});
    line.check_length("max_new_tokens", requests.back().context.size(), requests.back().max_new_tokens);
  });
  return requests;
}

std::string answer_line(const ScoredRequest& request, double log_likelihood, bool greedy) {
  const json answer{{"loglikelihood", log_likelihood}, {"greedy", greedy}};
  return R"({"id": )" + request.id + ", " + answer.dump().substr(1) + "\n";
}

std::string answer_line(const GenerationRequest& request, const std::vector<std::int64_t>& tokens) {
  const json answer{{"tokens", tokens}};
  return R"({"id": )" + request.id + ", " + answer.dump().substr(1) + "\n";
}

}  // namespace headspan
