#include "app/run/sample.h"

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "base/printable.h"
#include "base/sha256.h"
#include "io/inputs/tokens.h"

namespace headspan {
namespace {

void hold_out(const Job::Tokens& rule, Sample& sample) {
  const auto count = static_cast<std::int64_t>(sample.sequences.size());
  sample.heldout = choose_heldout(count, rule.heldout, static_cast<std::uint64_t>(rule.seed));
  if (rule.heldout > 0 && !sample.has_heldout())
    sample.notices.push_back("a single sequence leaves nothing to hold out: there will be no held-out R2");
  std::int64_t skipped = 0, longest = 0;  // sequences without a token after skip_first; tokens
  for (const Sequence& sequence : sample.sequences) {
    skipped += sequence.length <= rule.skip_first ? 1 : 0;
    longest = std::max(longest, sequence.length);
  }
  if (skipped == count)
    throw InputError("", "tokens.skip_first", std::to_string(rule.skip_first),
                     "leaves no token of any sequence",
                     "the longest sequence has " + std::to_string(longest) + " tokens");
}

/// Returns the ASCII letters and digits of a name in lower case, so that spellings compare equal.
std::string letters_of(const std::string& name) {
  std::string letters;
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return letters;
}

/// Returns a warning if the sidecar names another vocabulary or tokenizer than the model's, else an empty
/// text. The model's vocabulary may be padded. The tokenizer's name is expected in the path of the checkpoint
/// or in the model's name.
std::string find_mismatch(const TokenSidecar& sidecar, const ModelConfig& config,
                          const std::string& config_path, const std::string& model_name) {
  constexpr std::int64_t kPadding = 1024;
  const auto mismatch = [&](const std::string& field, const std::string& value, const std::string& model) {
    return sidecar.path + ": " + field + " = " + value + ": " + model +
           "; the tokens may be those of another tokenizer";
  };
  if (sidecar.vocab_size && config.vocab_size - *sidecar.vocab_size > kPadding)
    return mismatch("vocab_size", std::to_string(*sidecar.vocab_size),
                    config_path + " has a vocabulary of " + std::to_string(config.vocab_size));
  const std::string tokenizer = sidecar.tokenizer.substr(sidecar.tokenizer.rfind('/') + 1),
                    known = std::filesystem::absolute(config_path).string() + " " + model_name;
  if (letters_of(known).find(letters_of(tokenizer)) != std::string::npos) return {};
  return mismatch("tokenizer", printable(sidecar.tokenizer), config_path + " is of a model of another name");
}

/// Returns, as a text, what the files beside the token file say about how it is read and cut.
std::string cut_files(const Job::Tokens& rule) {
  std::string text;
  if (const auto sidecar = read_token_sidecar(rule.path)) {
    text = sidecar->dtype;
    for (const std::int64_t id : sidecar->eos)
      if (!rule.eos) text += " " + std::to_string(id);
  }
  const std::string index = std::filesystem::path(rule.path).replace_extension(".idx").string();
  const bool indexed = !rule.format || rule.format == TokenFormat::megatron;
  if (indexed && std::filesystem::exists(index)) text += "\n" + sha256_file(index);
  return text;
}

/// Returns on all ranks what `hash` returns on rank 0. Collective over comm.
template <class Hash>
std::string on_root(const Comm& comm, const Hash& hash) {
  std::string digest;
  agree(comm, [&] {
    if (comm.is_root()) digest = hash();
  });
  return comm.broadcast(digest, 0);
}

}  // namespace

bool Sample::has_heldout() const { return std::find(heldout.begin(), heldout.end(), 1) != heldout.end(); }

std::int64_t Sample::total() const {
  std::int64_t sum = 0;
  for (const Sequence& sequence : sequences) sum += sequence.length;
  return sum;
}

Sample take_sample(const Job::Tokens& rule, const ModelConfig& config, const std::string& config_path,
                   const std::string& model_name) {
  const TokenFile file = TokenFile::open(rule.path, rule.format, rule.dtype, config.vocab_size);
  const auto& sidecar = file.sidecar();
  if (sidecar && sidecar->vocab_size && *sidecar->vocab_size > config.vocab_size)
    throw InputError(sidecar->path, "vocab_size", std::to_string(*sidecar->vocab_size),
                     config_path + " has a vocabulary of " + std::to_string(config.vocab_size),
                     "give tokens of this model's own tokenizer");
  CutRule cut{rule.sequence_length, rule.limit, {}, config.vocab_size};
  if (rule.eos)
    cut.eos = *rule.eos;
  else if (sidecar && !sidecar->eos.empty())
    cut.eos = sidecar->eos;
  else
    cut.eos = config.eos;
  Sample sample;
  if (sidecar) sample.mismatch = find_mismatch(*sidecar, config, config_path, model_name);
  if (sidecar && sidecar->text_bytes && *sidecar->text_bytes > 0)
    sample.tokens_per_byte = static_cast<double>(file.count()) / static_cast<double>(*sidecar->text_bytes);
  sample.sequences = cut_sequences(file, cut);
  sample.eos = cut.eos;
  if (file.count() < rule.limit)
    sample.notices.push_back(rule.path + " holds " + std::to_string(file.count()) +
                             " tokens, fewer than tokens.limit = " + std::to_string(rule.limit) +
                             ": all are used");
  std::int64_t longest = 0;
  for (const Sequence& sequence : sample.sequences) {
    sample.tokens.push_back(file.read(sequence.start, sequence.length));
    longest = std::max(longest, sequence.length);
  }
  if (longest > config.max_positions && config.max_positions > 0)
    sample.notices.push_back("sequences of " + std::to_string(longest) + " tokens are longer than the " +
                             std::to_string(config.max_positions) + " positions that the model was made for");
  hold_out(rule, sample);
  return sample;
}

std::vector<std::int64_t> document_ends(const Job::Tokens& rule, const ModelConfig& config) {
  std::vector<std::int64_t> ends = config.eos;
  if (rule.eos) ends.insert(ends.end(), rule.eos->begin(), rule.eos->end());
  return ends;
}

void tell(const Sample& sample, const Log& log) {
  for (const std::string& notice : sample.notices) log.notice(notice);
  if (!sample.mismatch.empty()) log.warning(sample.mismatch);
}

std::string sample_digest(const Sample& sample) {
  Sha256 digest;
  const auto add = [&](const auto& values) {
    const auto bytes = static_cast<std::int64_t>(values.size() * sizeof(values[0]));
    digest.update(&bytes, sizeof bytes);
    digest.update(values.data(), bytes);
  };
  add(sample.sequences);
  add(sample.heldout);
  for (const auto& tokens : sample.tokens) add(tokens);
  return digest.hex();
}

std::string hash_tokens(const Job::Tokens& rule) {
  return std::filesystem::exists(rule.path) ? hash_token_file(rule.path) : "";
}

std::string hash_cut(const Job::Tokens& rule) {
  return std::filesystem::exists(rule.path) ? sha256_hex(cut_files(rule)) : "";
}

std::string hash_tokens(const Job::Tokens& rule, const Comm& comm) {
  return on_root(comm, [&] { return hash_tokens(rule); });
}

std::string hash_cut(const Job::Tokens& rule, const Comm& comm) {
  return on_root(comm, [&] { return hash_cut(rule); });
}

Sample split_sequences(const Job::Tokens& rule, const std::vector<Sequence>& sequences) {
  Sample sample;
  std::int64_t total = 0, given = 0;
  for (Sequence sequence : sequences) {
    given += sequence.length;
    sequence.length = std::min(sequence.length, rule.limit - total);
    if (sequence.length <= 0) continue;
    sample.sequences.push_back(sequence);
    total += sequence.length;
  }
  if (total < given)
    sample.notices.push_back("tokens.limit = " + std::to_string(rule.limit) + " cuts the " +
                             std::to_string(given) + " tokens given");
  hold_out(rule, sample);
  return sample;
}

}  // namespace headspan
