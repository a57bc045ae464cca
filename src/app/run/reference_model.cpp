#include "app/run/reference_model.h"

#include <algorithm>
#include <filesystem>

#include "base/input_file.h"
#include "base/sha256.h"
#include "io/json_text.h"

namespace headspan {
namespace {

namespace fs = std::filesystem;

std::string tokenizer_of(const ModelInput& input) {
  return fs::path(input.config_path).replace_filename("tokenizer.json").string();
}

/// Returns the pieces of text that a tokenizer's ids stand for. Special tokens may be added to them later.
nlohmann::json vocabulary_of(const std::string& path) {
  const char* right = "a tokenizer.json as transformers writes it";
  const nlohmann::json tokenizer = parse_json(path, read_whole_file(path), right);
  const nlohmann::json::json_pointer place("/model/vocab");
  if (!tokenizer.is_object() || !tokenizer.contains(place))
    throw InputError(path, "model.vocab", "", "is missing", right);
  return tokenizer.at(place);
}

void check_same_vocabulary(const ModelInput& own, const ModelInput& reference) {
  const std::string ours = tokenizer_of(own), theirs = tokenizer_of(reference);
  const char* remedy = "give a checkpoint with the same tokenizer";
  std::error_code missing;
  if (fs::exists(ours, missing) && fs::exists(theirs, missing)) {
    if (sha256_file(ours) == sha256_file(theirs) || vocabulary_of(ours) == vocabulary_of(theirs)) return;
    throw InputError("", "cross.model", theirs, "holds another vocabulary than " + ours, remedy);
  }
  if (own.config.vocab_size != reference.config.vocab_size)
    throw InputError("", "cross.model", reference.config_path,
                     "has a vocabulary of " + std::to_string(reference.config.vocab_size) + ", and " +
                         own.config_path + " one of " + std::to_string(own.config.vocab_size),
                     std::string(remedy) + ", or put tokenizer.json beside both");
}

}  // namespace

ModelInput open_reference(const Job::Model& rule, const std::string& path, const ModelInput& own,
                          const Sample& sample) {
  ModelInput reference = open_model(rule, path, false, false);
  reference.dtype = own.dtype;
  check_same_vocabulary(own, reference);
  for (const auto& tokens : sample.tokens)
    for (const std::int64_t id : tokens)
      if (id >= reference.config.vocab_size)
        throw InputError("", "cross.model", reference.config_path,
                         "has a vocabulary of " + std::to_string(reference.config.vocab_size) +
                             ", which lacks token " + std::to_string(id),
                         "give a checkpoint that knows all tokens of tokens.path");
  return reference;
}

}  // namespace headspan
