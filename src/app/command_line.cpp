#include "app/command_line.h"

#include <algorithm>
#include <boost/program_options.hpp>
#include <map>
#include <optional>

#include "app/job/job_file.h"
#include "app/job/job_options.h"
#include "app/job/unknown_key.h"
#include "app/job/value_kind.h"
#include "base/error.h"
#include "base/printable.h"
#include "base/provenance.h"

namespace headspan {
namespace {

namespace po = boost::program_options;

std::string command_names() {
  std::string names;
  for (const CommandRow& command : commands())
    names += (names.empty() ? "" : ", ") + std::string(command.name);
  return names;
}

std::string program_help() {
  std::string text = program_name() +
                     "\nMeasures how well each attention head of a language model can be predicted linearly "
                     "from others.\n\n";
  for (const CommandRow& command : commands())
    text += std::string("  ") + command.usage + "\n      " + command.summary + "\n";
  return text +
         "  headspan COMMAND --help\n  headspan --version\n\n"
         "Runs with and without mpirun. Exit codes: 0 done; 1 the environment failed; 2 the input is at "
         "fault;\n"
         "3 stopped with the state saved: the same command continues.\n";
}

std::string command_help(const CommandRow& command) {
  std::string text =
      std::string(command.usage) + "\n" + command.summary + "\n\n" + command_options_help(command.command);
  if (command.sections.empty()) return text;
  return text +
         "\nThe command line overrides the job file. Lists are comma-separated; paths are relative to the "
         "current\n"
         "folder. In a job file a line that starts with # or ; is a comment, as is the rest of a line from # "
         "on.\n" +
         job_options_help(command.command);
}

/// The arguments as the user wrote them.
struct Written {
  std::vector<std::string> words;
  GivenKeys keys;
  std::map<std::string, std::string> options;  ///< of command_options(), and "version"

  bool has(const char* option) const { return options.count(option) > 0; }
  std::optional<std::string> value(const char* option) const {
    const auto found = options.find(option);
    return found == options.end() ? std::nullopt : std::optional(found->second);
  }
};

std::vector<po::option> run_boost(int argc, const char* const* argv) {
  po::options_description known;
  known.add_options()("version", "")("word", po::value<std::string>());
  for (const CommandOption& option : command_options())
    if (*option.value != '\0')
      known.add_options()(option.name, po::value<std::string>(), "");
    else
      known.add_options()(option.name, "");
  for (const JobOption& option : job_options())
    known.add_options()(option.name.c_str(), po::value<std::string>(), "");
  po::positional_options_description words;
  words.add("word", -1);
  namespace style = po::command_line_style;
  try {
    return po::command_line_parser(argc, argv)
        .options(known)
        .positional(words)
        .style(style::allow_long | style::long_allow_adjacent | style::long_allow_next)
        .allow_unregistered()
        .run()
        .options;
  } catch (const po::error& error) {
    throw InputError(kCommandLine, "", "", printable(error.what()), "headspan COMMAND --help lists the keys");
  }
}

/// Returns the option of command_options() that a word such as "-q" or a name such as "ranks" stands for;
/// null if none does.
const CommandOption* find_option(const std::string& word) {
  for (const CommandOption& option : command_options())
    if (word == option.name || (option.letter != '\0' && word == std::string{'-', option.letter}))
      return &option;
  return nullptr;
}

[[noreturn]] void refuse_twice(const std::string& key, const std::string& value) {
  throw InputError(kCommandLine, key, printable(value), "is given twice", "keep one of the two");
}

Written read_words(int argc, const char* const* argv) {
  Written written;
  const std::vector<po::option> options = run_boost(argc, argv);
  for (std::size_t i = 0; i < options.size(); ++i) {
    const po::option& option = options[i];
    const std::string& key = option.string_key;
    std::string value = option.value.empty() ? "" : option.value.front();
    const bool is_word = option.position_key >= 0;
    if (const CommandOption* known = find_option(is_word ? value : key);
        known && (!is_word || value[0] == '-')) {
      if (value.substr(0, 2) == "--")
        throw InputError(kCommandLine, key, "", "has no value", "--" + key + " VALUE");
      const bool first = written.options.emplace(known->name, is_word ? "" : value).second;
      if (!first && *known->value != '\0') refuse_twice(key, value);
    } else if (is_word) {
      written.words.push_back(value);
    } else if (key == "version") {
      written.options.emplace(key, "");
    } else if (option.unregistered) {
      if (value.empty() && i + 1 < options.size() && options[i + 1].position_key >= 0)
        value = options[i + 1].value[0];
      refuse_unknown_key(kCommandLine, key, value);
    } else if (value.substr(0, 2) == "--") {
      throw InputError(kCommandLine, key, "", "has no value", "--" + key + " VALUE");
    } else if (!written.keys.emplace(key, GivenValue{kCommandLine, value}).second) {
      refuse_twice(key, value);
    }
  }
  return written;
}

[[noreturn]] void refuse_option(const std::string& option, const std::string& text, const CommandRow& command,
                                const std::string& right) {
  throw InputError(kCommandLine, option, printable(text), std::string("is not for ") + command.name, right);
}

/// Throws InputError for an option that is of other commands.
void check_options(const Written& written, const CommandRow& command) {
  for (const CommandOption& option : command_options()) {
    if (!written.has(option.name) || option.commands.count(command.command) > 0) continue;
    std::string others;
    for (const Command other : option.commands)
      others += (others.empty() ? "it is for " : ", ") + std::string(row_of(other).name);
    refuse_option(option.name, *written.value(option.name), command, others);
  }
  if (written.has("quiet") && written.has("verbose"))
    throw InputError(kCommandLine, "quiet", "", "contradicts --verbose", "keep one of the two");
}

std::int64_t read_ranks(const std::optional<std::string>& text) {
  if (!text) throw InputError(kCommandLine, "--ranks", "", "is missing", "headspan plan JOB.ini --ranks N");
  const auto ranks = integer(1, kMaxRanks);
  try {
    return ranks.read(*text);
  } catch (const BadValue& error) {
    throw InputError(kCommandLine, "--ranks", printable(*text), error.what(), "allowed: " + ranks.allowed);
  }
}

/// Joins the first two words if they name a command together, as "archive encode" does, or could. "archive
/// inspect" is inspect, which takes every file.
void join_command(std::vector<std::string>& words) {
  const std::string group = words[0] + " ";
  const bool is_group = std::any_of(commands().begin(), commands().end(), [&](const CommandRow& row) {
    return std::string(row.name).rfind(group, 0) == 0;
  });
  if (!is_group || words.size() < 2) return;
  words[0] = words[1] == "inspect" ? words[1] : group + words[1];
  words.erase(words.begin() + 1);
}

Job read_job(Command command, const std::vector<std::string>& words, const GivenKeys& overrides) {
  if (words.size() > 2)
    throw InputError(kCommandLine, "", "", "'" + printable(words[2]) + "' is one argument too many",
                     "one job file, and --section.key for each key");
  if (words.size() < 2) return make_job(command, kCommandLine, overrides);
  GivenKeys given = read_job_file(words[1]);
  for (const auto& [key, value] : overrides) given[key] = value;
  Job job = make_job(command, words[1], given);
  job.file = words[1];
  return job;
}

}  // namespace

Request parse_command_line(int argc, const char* const* argv) {
  Written written = read_words(argc, argv);
  Request request;
  if (written.has("version")) {
    request.version = true;
    request.answer = program_name() + "\n";
    return request;
  }
  if (written.words.empty()) {
    if (!written.has("help"))
      throw InputError(kCommandLine, "", "", "names no command", "one of " + command_names() + ", or --help");
    request.answer = program_help();
    return request;
  }
  join_command(written.words);
  const CommandRow* command = find_command(written.words[0]);
  if (command == nullptr)
    throw InputError(kCommandLine, "", "", "'" + printable(written.words[0]) + "' is not a command",
                     "one of " + command_names());
  request.command = command->command;
  if (written.has("help")) {
    request.answer = command_help(*command);
    return request;
  }
  check_options(written, *command);
  request.units = written.has("units");
  request.dry_run = written.has("dry-run");
  request.json = written.has("json");
  if (written.has("quiet")) request.verbosity = Verbosity::quiet;
  if (written.has("verbose")) request.verbosity = Verbosity::verbose;
  if (request.command == Command::plan) {
    request.plan = {read_ranks(written.value("ranks")), written.value("rates").value_or(""), request.json};
    if (const auto memory = written.value("memory-gib"))
      written.keys["run.memory_gib"] = {kCommandLine, *memory};
  }
  if (!command->sections.empty()) {
    request.job = read_job(request.command, written.words, written.keys);
    return request;
  }
  if (!written.keys.empty()) {
    const auto& [key, value] = *written.keys.begin();
    refuse_option(key, value.text, *command, command->usage);
  }
  request.files.assign(written.words.begin() + 1, written.words.end());
  if (request.files.empty()) throw InputError(kCommandLine, "", "", "names no file", command->usage);
  return request;
}

}  // namespace headspan
